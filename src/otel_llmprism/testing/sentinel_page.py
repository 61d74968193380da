# The page over the fake sentinel, with the traces of a few of its steps in the store: for the browser's tests
# and for pictures. `python -m otel_llmprism.testing.sentinel_page` serves until a line comes in.
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.store.latest_metrics import LatestMetrics
from otel_llmprism.exporters.store.scan_columns import SpanColumns
from otel_llmprism.exporters.store.searchable import RESOURCE_KEYS, SPAN_KEYS
from otel_llmprism.exporters.store.store import SpanStore
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv import finding, step
from otel_llmprism.service.all_in_one.settings import UpFlags, load_up_settings
from otel_llmprism.service.all_in_one.ui_server import UiServer
from otel_llmprism.service.query.sentinel_view import SentinelView
from otel_llmprism.testing.sentinel_fake import FakeSentinel
from otel_llmprism.testing.sentinel_fake_findings import OPEN_FINDING
from otel_llmprism.testing.sentinel_fake_fleet import ALARMED, RUN

SLOW_STEP, FINDING_TRACE = 60_990, "f1" * 16
_CYCLE_NS, _EXPECTED_S, _RESIDUAL = 61_700_000, 0.0338, 0.602
Value = str | float | int | bool


@contextmanager
def serve_page(
    folder: Path, sentinel: SentinelView, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield the page's address, served from this process while the block lasts."""
    settings = load_up_settings(UpFlags(data=folder, ui="127.0.0.1:0"), environment or {})
    store = SpanStore(settings.build_store_config(), time.time_ns)
    payload = _build_traces(time.time_ns())
    store.write_spans(payload, SpanColumns(SPAN_KEYS, RESOURCE_KEYS).read_rows(payload))
    server = UiServer(settings, Counters(), LatestMetrics(), [], sentinel)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop(time.monotonic_ns() + 5 * 10**9)
        store.close()


def _build_traces(now_ns: int) -> bytes:
    request = ExportTraceServiceRequest()
    engine = request.resource_spans.add()
    _set(engine, {"service.name": "chat", "llmprism.engine.id": ALARMED})
    spans = engine.scope_spans.add().spans
    trace_id = derive_step_trace_id(ALARMED, bytes.fromhex(RUN), SLOW_STEP)
    slow = spans.add(trace_id=trace_id, span_id=derive_span_id(trace_id, step.SPAN_STEP), name=step.SPAN_STEP)
    told: dict[str, Value] = {step.STEP_ID: SLOW_STEP, step.STEP_KIND: "decode", step.STEP_CYCLE_S: 0.0617}
    told |= {step.STEP_EXPECTED_S: _EXPECTED_S, step.STEP_RESIDUAL: _RESIDUAL, step.STEP_ANOMALOUS: True}
    _finish(slow, now_ns, _CYCLE_NS, told)
    found = spans.add(
        trace_id=bytes.fromhex(FINDING_TRACE),
        span_id=b"f" * 8,
        name=finding.SPAN_FINDING,
        kind=Span.SPAN_KIND_INTERNAL,
    )
    _finish(
        found, now_ns, 2 * 10**9, {finding.FINDING_ID: OPEN_FINDING, finding.FINDING_KIND: "cpu_contention"}
    )
    found.links.add(trace_id=slow.trace_id, span_id=slow.span_id)
    return request.SerializeToString()


def _finish(span: Span, end_ns: int, length_ns: int, attributes: Mapping[str, Value]) -> None:
    span.start_time_unix_nano, span.end_time_unix_nano = end_ns - length_ns, end_ns
    _set(span, attributes)


def _set(owner: object, attributes: Mapping[str, Value]) -> None:
    place = owner.attributes if isinstance(owner, Span) else owner.resource.attributes  # type: ignore[attr-defined]
    for key, value in attributes.items():
        pair = place.add(key=key)
        if isinstance(value, bool):
            pair.value.bool_value = value
        elif isinstance(value, int):
            pair.value.int_value = value
        elif isinstance(value, float):
            pair.value.double_value = value
        else:
            pair.value.string_value = value


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_page(Path(folder), FakeSentinel(time.time_ns)) as address,
    ):
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        sys.stdin.readline()
    return 0


if __name__ == "__main__":
    sys.exit(main())
