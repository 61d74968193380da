# One request brought to its end, against a client that answers by a list.
from collections.abc import Iterable

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.exporters.otlp_client_result import DELIVERED, SendResult, SendStatus
from otel_llmprism.exporters.retry import RetryConfig
from otel_llmprism.exporters.sink_delivery import Delivery
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.semconv.pipeline import EGRESS_REQUESTS

BUSY = SendResult(SendStatus.RETRYABLE, "busy")
NEVER = SendResult(SendStatus.PERMANENT, "unknown tenant")


class ListClient:
    def __init__(self, results: Iterable[SendResult]) -> None:
        self.results = list(results)
        self.sent: list[bytes] = []

    def send(self, signal: Signal, payload: bytes, timeout_s: float | None = None) -> SendResult:
        self.sent.append(payload)
        return self.results.pop(0) if self.results else DELIVERED


class LimitedClient:
    """Takes requests up to a size, as a backend with a message limit does."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.taken: list[bytes] = []

    def send(self, signal: Signal, payload: bytes, timeout_s: float | None = None) -> SendResult:
        if len(payload) > self.max_bytes:
            return SendResult(SendStatus.TOO_LARGE, "message larger than max")
        self.taken.append(payload)
        return DELIVERED


class RaisingClient:
    def send(self, signal: Signal, payload: bytes, timeout_s: float | None = None) -> SendResult:
        raise AssertionError("a bug")


class Box:
    def __init__(self) -> None:
        self.letters: list[tuple[Signal, bytes, str]] = []

    def write(self, signal: Signal, payload: bytes, cause: str) -> None:
        self.letters.append((signal, payload, cause))


class PatientWait:
    """Never sleeps; gives up after `attempts` waits."""

    def __init__(self, attempts: int = 100) -> None:
        self.left = attempts
        self.delays_s: list[float] = []

    def wait(self, delay_s: float, /) -> bool:
        self.delays_s.append(delay_s)
        self.left -= 1
        return self.left >= 0

    def limit_timeout(self) -> float | None:
        return None


def build_delivery(
    client: ListClient | LimitedClient | RaisingClient,
) -> tuple[Delivery, Box, Counters]:
    box, counters = Box(), Counters()
    return Delivery(client, RetryConfig(), box, counters, lambda: 1.0), box, counters


def build_request(span_names: Iterable[str]) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    scope = resource.scope_spans.add()
    for index, name in enumerate(span_names, 1):
        scope.spans.add(name=name, span_id=index.to_bytes(8, "big"), trace_id=b"t" * 16)
    return request.SerializeToString()


def read_names(payloads: Iterable[bytes]) -> list[str]:
    return [
        span.name
        for payload in payloads
        for resource in ExportTraceServiceRequest.FromString(payload).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def test_busy_backend_is_asked_again_until_it_takes() -> None:
    client = ListClient([BUSY] * 20)
    delivery, box, counters = build_delivery(client)
    wait = PatientWait()
    assert delivery.deliver(Signal.TRACES, b"x", wait)
    assert len(client.sent) == 21
    assert wait.delays_s[:3] == [0.5, 1.0, 2.0]
    assert not box.letters
    assert counters.value(EGRESS_REQUESTS, signal="traces", outcome="delivered") == 1


def test_giving_up_neither_counts_nor_buries() -> None:
    delivery, box, counters = build_delivery(ListClient([BUSY] * 5))
    assert not delivery.deliver(Signal.TRACES, b"x", PatientWait(attempts=2))
    assert not box.letters
    assert counters.value(EGRESS_REQUESTS, signal="traces", outcome="delivered") == 0


def test_rejection_for_good_goes_to_the_dead_letters() -> None:
    delivery, box, counters = build_delivery(ListClient([NEVER]))
    assert delivery.deliver(Signal.LOGS, b"x", PatientWait())
    assert box.letters == [(Signal.LOGS, b"x", "unknown tenant")]
    assert counters.value(EGRESS_REQUESTS, signal="logs", outcome="permanent") == 1


def test_partial_success_is_counted_and_not_sent_again() -> None:
    client = ListClient([SendResult(SendStatus.PARTIAL, "too old", rejected_count=4)])
    delivery, box, counters = build_delivery(client)
    assert delivery.deliver(Signal.METRICS, b"x", PatientWait())
    assert len(client.sent) == 1
    assert not box.letters
    assert counters.value(LOST, stage="export", cause="rejected_by_backend") == 4


def test_request_too_large_arrives_in_pieces_in_order() -> None:
    names = [f"span {i}" for i in range(33)]
    request = build_request(names)
    client = LimitedClient(max_bytes=len(request) // 5)
    delivery, box, _ = build_delivery(client)
    assert delivery.deliver(Signal.TRACES, request, PatientWait())
    assert read_names(client.taken) == names
    assert not box.letters


def test_single_record_too_large_is_buried_and_the_rest_arrives() -> None:
    names = ["a", "b" * 5000, "c", "d"]
    client = LimitedClient(max_bytes=1000)
    delivery, box, _ = build_delivery(client)
    assert delivery.deliver(Signal.TRACES, build_request(names), PatientWait())
    assert read_names(client.taken) == ["a", "c", "d"]
    assert read_names(payload for _, payload, _ in box.letters) == ["b" * 5000]
    assert box.letters[0][2] == "message larger than max"


def test_too_large_but_unreadable_is_buried() -> None:
    delivery, box, _ = build_delivery(LimitedClient(max_bytes=1))
    assert delivery.deliver(Signal.TRACES, b"\xff\xff\xff", PatientWait())
    assert len(box.letters) == 1


def test_fault_of_the_client_buries_instead_of_raising() -> None:
    delivery, box, _ = build_delivery(RaisingClient())
    assert delivery.deliver(Signal.TRACES, b"x", PatientWait())
    assert box.letters[0][2] == "internal error: AssertionError"
