# Exchanging the sink: what the old one held goes to the new one at once, however full that one is.
import threading
import time
from dataclasses import dataclass, field

from otel_llmprism.exporters.otlp_client_result import SendResult, SendStatus
from otel_llmprism.exporters.retry import RetryConfig
from otel_llmprism.exporters.sink import InFlightConfig, OtlpSink
from otel_llmprism.exporters.sink_delivery import Delivery
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.service.reload_switch import SwitchSink
from otel_llmprism.testing.contracts import build_batch


@dataclass
class Backend:
    """Down until told otherwise."""

    is_up: threading.Event = field(default_factory=threading.Event)

    def send(self, signal: Signal, payload: bytes, timeout_s: float | None = None) -> SendResult:
        return SendResult(SendStatus.DELIVERED if self.is_up.is_set() else SendStatus.RETRYABLE)


class NoLetters:
    def write(self, signal: Signal, payload: bytes, cause: str) -> None:
        raise AssertionError(cause)


def build_sink(backend: Backend) -> OtlpSink:
    retry = RetryConfig(initial_interval_s=0.005, max_interval_s=0.01)
    delivery = Delivery(backend, retry, NoLetters(), Counters())
    return OtlpSink(InFlightConfig(requests=1), delivery, lambda: None, Counters())


def in_seconds(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)


def test_switch_does_not_wait_for_room_in_a_sink_whose_backend_is_down() -> None:
    switch = SwitchSink(build_sink(Backend()))
    switch.start()
    held, held_receipt = build_batch(b"held by the old sink")
    switch.send(held)

    backend, full = Backend(), threading.Event()
    new_sink = build_sink(backend)
    other, other_receipt = build_batch(b"already in the new sink")
    start = new_sink.start

    def start_full() -> None:
        start()
        new_sink.send(other)
        full.set()

    new_sink.start = start_full  # type: ignore[method-assign]  # the flow is faster than the heir
    switching = threading.Thread(target=switch.switch, args=(new_sink, in_seconds(0.2)), daemon=True)
    switching.start()
    switching.join(10)
    is_over = not switching.is_alive()
    backend.is_up.set()
    switch.stop(in_seconds(5))
    assert full.is_set()
    assert is_over
    assert (held_receipt.settled, other_receipt.settled) == (1, 1)
