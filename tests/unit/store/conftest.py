# Requests, stores and readers for the tests of the embedded store.
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.config import StoreConfig
from otel_llmprism.exporters.store.connection_pool import ConnectionPool
from otel_llmprism.exporters.store.reader import StoreReader
from otel_llmprism.exporters.store.scan_columns import SpanColumns
from otel_llmprism.exporters.store.searchable import RESOURCE_KEYS, SPAN_KEYS
from otel_llmprism.exporters.store.store import SpanStore

Scalar = str | bool | int | float
MakeRequest = Callable[..., bytes]


def make_pair(key: str, value: Scalar) -> KeyValue:
    pair = KeyValue(key=key)
    if isinstance(value, bool):
        pair.value.bool_value = value
    elif isinstance(value, int):
        pair.value.int_value = value
    elif isinstance(value, float):
        pair.value.double_value = value
    else:
        pair.value.string_value = value
    return pair


@pytest.fixture
def make_request() -> MakeRequest:
    """Spans as dicts -> one request; ids are small numbers, times nanoseconds."""

    def make(
        *spans: dict[str, object], service: str = "shop", resource: dict[str, Scalar] | None = None
    ) -> bytes:
        request = ExportTraceServiceRequest()
        group = request.resource_spans.add()
        for key, value in {"service.name": service, **(resource or {})}.items():
            group.resource.attributes.append(make_pair(key, value))
        scope = group.scope_spans.add()
        scope.scope.name, scope.scope.version = "made.up", "1.2"
        for number, fields in enumerate(spans, 1):
            span = scope.spans.add()
            span.trace_id = int(str(fields.get("trace", 1))).to_bytes(16, "big")
            span.span_id = int(str(fields.get("span", number))).to_bytes(8, "big")
            if "parent" in fields:
                span.parent_span_id = int(str(fields["parent"])).to_bytes(8, "big")
            span.name = str(fields.get("name", "work"))
            span.kind = int(str(fields.get("kind", 1)))  # type: ignore[assignment]
            span.status.code = int(str(fields.get("status", 0)))  # type: ignore[assignment]
            span.start_time_unix_nano = int(str(fields.get("start", 1_000_000)))
            span.end_time_unix_nano = span.start_time_unix_nano + int(str(fields.get("duration", 5_000)))
            attributes = fields.get("attributes", {})
            assert isinstance(attributes, dict)
            for key, value in attributes.items():
                span.attributes.append(make_pair(key, value))
            links = fields.get("links", [])
            assert isinstance(links, list)
            for trace, target in links:
                link = span.links.add(trace_id=trace.to_bytes(16, "big"), span_id=target.to_bytes(8, "big"))
                link.attributes.append(make_pair("llmprism.request.tokens", 7))
        return request.SerializeToString()

    return make


@pytest.fixture
def store_config(tmp_path: Path) -> StoreConfig:
    return StoreConfig(tmp_path / "data")


@pytest.fixture
def store(store_config: StoreConfig) -> Iterator[SpanStore]:
    opened = SpanStore(store_config, time.time_ns)
    yield opened
    opened.close()


@pytest.fixture
def pool(store_config: StoreConfig) -> Iterator[ConnectionPool]:
    opened = ConnectionPool(store_config.folder / "spans.db")
    yield opened
    opened.close()


@pytest.fixture
def reader(pool: ConnectionPool) -> StoreReader:
    return StoreReader(pool, {*SPAN_KEYS, *RESOURCE_KEYS})


@pytest.fixture
def catalog(pool: ConnectionPool) -> StoreCatalog:
    return StoreCatalog(pool)


@pytest.fixture
def write(store: SpanStore) -> Callable[[bytes], tuple[int, int]]:
    """Write one request; tells new spans and duplicates."""
    columns = SpanColumns(SPAN_KEYS, RESOURCE_KEYS)

    def write_request(payload: bytes) -> tuple[int, int]:
        written = store.write_spans(payload, columns.read_rows(payload))
        return written.spans, written.duplicates

    return write_request
