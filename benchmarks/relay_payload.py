# Makes the traffic of the relay benchmarks: trace export requests of 512 spans with 10 attributes each,
# of which every tenth is one that the enricher is asked to enrich. Same seed, same bytes.
import random
from collections.abc import Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SPANS_PER_REQUEST = 512
ENRICHED_EVERY = 10
MATCH_KEY, MATCH_VALUE = "bench.enrich", "yes"
STAMPS = {"llmprism.bench.text": "stamped", "llmprism.bench.count": 42, "llmprism.bench.flag": True}

# The sink finds the time of sending here and needs to decode nothing.
SENT_MARK = b"bench-sent-ns="
SENT_DIGITS = 20


def build_requests(count: int, seed: int = 7) -> list[bytes]:
    """Return `count` different requests, each with its sending time still zero."""
    rng = random.Random(seed)  # noqa: S311 - traffic, not secrets
    return [_build_request(rng).SerializeToString() for _ in range(count)]


def split_at_sent(payload: bytes) -> tuple[bytes, bytes]:
    """Return what comes before and after the digits of the sending time."""
    (start,) = find_all_sent(payload)
    return payload[:start], payload[start + SENT_DIGITS :]


def find_all_sent(payload: bytes) -> Iterator[int]:
    """Yield the offsets of the digits, one for each request that was merged into `payload`."""
    at = payload.find(SENT_MARK)
    while at >= 0:
        yield at + len(SENT_MARK)
        at = payload.find(SENT_MARK, at + 1)


def _build_request(rng: random.Random) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    traces = request.resource_spans.add()
    traces.resource.attributes.append(_build_text("bench.sent", SENT_MARK.decode() + "0" * SENT_DIGITS))
    traces.resource.attributes.append(_build_text("service.name", "bench"))
    traces.resource.attributes.append(_build_text("host.name", "bench-host"))
    scope = traces.scope_spans.add()
    scope.scope.name = "bench"
    for index in range(SPANS_PER_REQUEST):
        scope.spans.append(_build_span(rng, is_enriched=index % ENRICHED_EVERY == 0))
    return request


def _build_span(rng: random.Random, *, is_enriched: bool) -> Span:
    start_ns = 1_790_000_000_000_000_000 + rng.randrange(10**9)
    span = Span(
        trace_id=rng.randbytes(16),
        span_id=rng.randbytes(8),
        parent_span_id=rng.randbytes(8),
        name=f"operation-{rng.randrange(20)}",
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=start_ns + rng.randrange(10**8),
    )
    span.attributes.extend(
        [
            _build_text("http.request.method", rng.choice(["GET", "POST"])),
            _build_text("url.path", f"/api/v1/items/{rng.randrange(10**6)}"),
            _build_text("server.address", f"node-{rng.randrange(100)}.example.org"),
            _build_text("user_agent.original", "bench/1.0 (linux; x86_64)"),
            KeyValue(key="http.response.status_code", value=AnyValue(int_value=rng.choice([200, 404, 500]))),
            KeyValue(key="server.port", value=AnyValue(int_value=8080)),
            KeyValue(key="app.ratio", value=AnyValue(double_value=rng.random())),
            KeyValue(key="app.cached", value=AnyValue(bool_value=rng.random() < 0.5)),
            KeyValue(key="app.tokens", value=AnyValue(int_value=rng.randrange(10**5))),
            _build_text(MATCH_KEY, MATCH_VALUE if is_enriched else "no"),
        ]
    )
    return span


def _build_text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))
