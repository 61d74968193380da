# A query application over a small store, and a client that calls it without sockets.
import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from starlette.types import ASGIApp

from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.config import StoreConfig
from otel_llmprism.exporters.store.connection_pool import ConnectionPool
from otel_llmprism.exporters.store.latest_metrics import LatestMetrics
from otel_llmprism.exporters.store.reader import StoreReader
from otel_llmprism.exporters.store.scan_columns import SpanColumns
from otel_llmprism.exporters.store.searchable import RESOURCE_KEYS, SPAN_KEYS
from otel_llmprism.exporters.store.store import SpanStore
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.service.query.app import Apis, build_app
from otel_llmprism.service.query.jaeger_routes import JaegerApi
from otel_llmprism.service.query.live import LiveNumbers
from otel_llmprism.service.query.llmprism_routes import LlmprismApi
from otel_llmprism.service.query.sentinel_routes import SentinelApi
from otel_llmprism.testing.sentinel_fake import FakeSentinel

GOLDEN = Path(__file__).parents[2] / "golden" / "query"
NOW_NS = 1_700_000_100 * 10**9


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class AsgiClient:
    """Calls an ASGI application as a browser on the same machine would."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def get(self, path: str, query: str = "", method: str = "GET", **headers: str) -> Answer:
        return self._ask(path, query, method, b"", headers)

    def post(self, path: str, body: bytes | None = b"{}", **headers: str) -> Answer:
        return self._ask(path, "", "POST", body, {"content_type": "application/json", **headers})

    def _ask(self, path: str, query: str, method: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        sent = {
            "host": "127.0.0.1:8317",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path).encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "server": ("127.0.0.1", 8317),
            "client": ("127.0.0.1", 5),
        }
        return asyncio.run(self._call(scope, body))

    async def _call(self, scope: dict[str, Any], body: bytes | None) -> Answer:
        messages: list[Any] = []

        async def receive() -> dict[str, Any]:
            if body is None:  # the client hangs up
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        await self._app(scope, receive, send)
        headers = {name.decode().lower(): value.decode() for name, value in messages[0]["headers"]}
        return Answer(
            messages[0]["status"], headers, b"".join(part.get("body", b"") for part in messages[1:])
        )


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def monotonic_ns() -> list[int]:
    return [0]


@pytest.fixture
def sentinel() -> FakeSentinel:
    return FakeSentinel(lambda: NOW_NS)


@pytest.fixture
def app(
    tmp_path: Path, counters: Counters, monotonic_ns: list[int], sentinel: FakeSentinel
) -> Iterator[ASGIApp]:
    store = SpanStore(StoreConfig(tmp_path / "data"), time.time_ns)
    payload = build_traces()
    store.write_spans(payload, SpanColumns(SPAN_KEYS, RESOURCE_KEYS).read_rows(payload))
    pool = ConnectionPool(store.path)
    reader, catalog = StoreReader(pool, {*SPAN_KEYS, *RESOURCE_KEYS}), StoreCatalog(pool)
    live = LiveNumbers(counters, catalog, LatestMetrics(), lambda: monotonic_ns[0])
    yield build_app(
        Apis(
            JaegerApi(reader, catalog, lambda: NOW_NS, with_content=False),
            LlmprismApi(reader, catalog, live, lambda: NOW_NS, with_content=False),
            SentinelApi(sentinel, reader, lambda: NOW_NS),
        )
    )
    pool.close()
    store.close()


@pytest.fixture
def client(app: ASGIApp) -> AsgiClient:
    return AsgiClient(app)


@pytest.fixture
def check_golden() -> Callable[[str, Any], None]:
    """Compare with a committed answer; OTEL_LLMPRISM_UPDATE_GOLDEN=1 writes it anew, to be read in review."""

    def check(name: str, data: Any) -> None:
        path = GOLDEN / f"{name}.json"
        if os.environ.get("OTEL_LLMPRISM_UPDATE_GOLDEN"):
            path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        assert data == json.loads(path.read_text())

    return check


@pytest.fixture
def connect() -> Callable[[ASGIApp], AsgiClient]:
    return AsgiClient


def add(attributes: Any, **values: object) -> None:
    for key, value in values.items():
        pair = KeyValue(key=key.replace("__", "."))
        if isinstance(value, bool):
            pair.value.bool_value = value
        elif isinstance(value, int):
            pair.value.int_value = value
        elif isinstance(value, float):
            pair.value.double_value = value
        elif isinstance(value, bytes):
            pair.value.bytes_value = value
        elif isinstance(value, list):
            for item in value:
                pair.value.array_value.values.add(string_value=item)
        else:
            pair.value.string_value = str(value)
        attributes.append(pair)


def build_traces() -> bytes:
    """One request served by a front end, one engine step that links to it."""
    request = ExportTraceServiceRequest()
    start = 1_700_000_000 * 10**9
    front = request.resource_spans.add()
    add(front.resource.attributes, service__name="front", host__name="node-1")
    scope = front.scope_spans.add()
    scope.scope.name, scope.scope.version = "made.up", "1.2"
    root = scope.spans.add(trace_id=b"R" * 16, span_id=b"r" * 8, name="llmprism.request")
    root.kind = Span.SPAN_KIND_SERVER
    root.start_time_unix_nano, root.end_time_unix_nano = start + 1500, start + 2_000_000
    root.trace_state, root.status.message = "a=b", "too slow"
    root.status.code = Status.STATUS_CODE_ERROR
    add(
        root.attributes,
        gen_ai__request__model="tiny",
        whole=7,
        large=1 << 60,
        part=1.5,
        odd=float("nan"),
        yes=True,
        raw=b"\x00\xff",
        gen_ai__response__finish_reasons=["stop", "länge"],
        gen_ai__prompt="the secret prompt",
    )
    event = root.events.add(time_unix_nano=start + 2000, name="first token")
    add(event.attributes, tokens=1)
    child = scope.spans.add(
        trace_id=b"R" * 16, span_id=b"c" * 8, parent_span_id=b"r" * 8, name="decode", kind=1
    )
    child.start_time_unix_nano, child.end_time_unix_nano = start + 3000, start + 1_000_000
    engine = request.resource_spans.add()
    add(engine.resource.attributes, service__name="engine", llmprism__engine__id="e0")
    step = engine.scope_spans.add().spans.add(
        trace_id=b"S" * 16, span_id=b"s" * 8, name="llmprism.step", kind=1
    )
    step.start_time_unix_nano, step.end_time_unix_nano = start + 5000, start + 900_000
    add(step.attributes, llmprism__step__kind="decode", llmprism__step__anomalous=False)
    for target in (b"R" * 16, b"X" * 16):
        link = step.links.add(trace_id=target, span_id=b"r" * 8)
        add(link.attributes, llmprism__request__tokens=3)
    rank = engine.scope_spans[0].spans.add(trace_id=b"R" * 16, span_id=b"k" * 8, parent_span_id=b"c" * 8)
    rank.name, rank.kind = "llmprism.rank", Span.SPAN_KIND_INTERNAL
    rank.start_time_unix_nano, rank.end_time_unix_nano = start + 6000, start + 800_000
    return request.SerializeToString()
