# The same made-up batches for every engine: 512 spans with 10 attributes, 8 spans a trace, 4 services.
import random
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

BATCH = 512
SPANS_A_TRACE = 8
START_NS = 1_700_000_000 * 10**9
_BATCH_NS = 10_000_000


def build_batches(count: int) -> list[bytes]:
    """Return serialised requests, equal in every process."""
    return [_build_batch(number) for number in range(count)]


def list_known(count: int) -> dict[str, Any]:
    """Return what to ask for: values that are in the batches."""
    rng = random.Random(count // 2)  # noqa: S311 - traffic, not secrets
    return {
        "service": "svc1",
        "operation": "op3",
        "request_id": f"req-{count // 2}-{BATCH // 2}",
        "other": f"value-{count // 3}",
        "trace_id": rng.randbytes(16),
    }


def _build_batch(number: int) -> bytes:
    rng = random.Random(number)  # noqa: S311 - traffic, not secrets
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = f"svc{number % 4}"
    group.resource.attributes.add(key="llmprism.engine.id").value.string_value = "engine-0"
    scope = group.scope_spans.add()
    scope.scope.name = "benchmark"
    trace_id = b""
    for index in range(BATCH):
        if index % SPANS_A_TRACE == 0:
            trace_id = rng.randbytes(16)
        start = START_NS + number * _BATCH_NS + index * 1000
        span = scope.spans.add(trace_id=trace_id, span_id=rng.randbytes(8), name=f"op{index % 7}")
        span.start_time_unix_nano, span.end_time_unix_nano = start, start + rng.randrange(1, 10**8)
        _add_attributes(span.attributes, number, index, rng)
    return request.SerializeToString()


def _add_attributes(attributes: Any, number: int, index: int, rng: random.Random) -> None:
    texts = {
        "llmprism.request.id": f"req-{number}-{index}",
        "gen_ai.request.model": "model-a",
        "llmprism.step.kind": "decode",
        "own.text": f"value-{number}",
        "net.peer": f"10.0.0.{rng.randrange(255)}",
    }
    for key, text in texts.items():
        attributes.add(key=key).value.string_value = text
    for key, whole in (
        ("llmprism.step.id", number),
        ("http.response.status_code", 200),
        ("tokens", rng.randrange(2000)),
    ):
        attributes.add(key=key).value.int_value = whole
    attributes.add(key="own.share").value.double_value = rng.random()
    attributes.add(key="own.flag").value.bool_value = True
