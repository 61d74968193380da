import threading
import time

import pytest

from otel_llmprism.exporters.otlp_client_result import DELIVERED, SendResult, SendStatus
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import EXPORT_BYTES, LOST
from otel_llmprism.service.exporter_process.outbox import Outbox, Parcel

MISSING = SendResult(SendStatus.PERMANENT, "no such service", is_missing_service=True)


class ScriptedClient:
    """Answers by signal; an event holds a signal back until it is set."""

    def __init__(self) -> None:
        self.answers: dict[Signal, SendResult] = {}
        self.gates: dict[Signal, threading.Event] = {}
        self.sent: list[tuple[Signal, bytes]] = []
        self.failing: dict[bytes, Exception] = {}
        self.is_closed = False

    def send(self, signal: Signal, payload: bytes, _timeout_s: float | None = None) -> SendResult:
        if signal in self.gates:
            self.gates[signal].wait(30)
        if payload in self.failing:
            raise self.failing[payload]
        self.sent.append((signal, payload))
        return self.answers.get(signal, DELIVERED)

    def close(self) -> None:
        self.is_closed = True


def close(outbox: Outbox) -> None:
    outbox.close(time.monotonic() + 30)


def test_everything_queued_leaves_in_order_before_the_end_and_its_bytes_are_counted() -> None:
    client, counters = ScriptedClient(), Counters()
    outbox = Outbox(client, counters, 1 << 20)
    for number in range(20):
        outbox.put(Parcel(Signal.TRACES, b"%02d" % number, 1, "random"))
    close(outbox)
    assert [payload for _, payload in client.sent] == [b"%02d" % number for number in range(20)]
    assert counters.value(EXPORT_BYTES, signal="traces", kept="random") == 40
    assert client.is_closed


def test_a_signal_nobody_takes_holds_up_no_other() -> None:
    client, counters = ScriptedClient(), Counters()
    client.gates[Signal.LOGS] = threading.Event()
    outbox = Outbox(client, counters, 1 << 20)
    outbox.put(Parcel(Signal.LOGS, b"stuck", 1))
    outbox.put(Parcel(Signal.TRACES, b"goes", 1))
    deadline = time.monotonic() + 30
    while not client.sent:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert client.sent == [(Signal.TRACES, b"goes")]
    client.gates[Signal.LOGS].set()
    close(outbox)


def test_what_does_not_fit_the_queue_is_counted() -> None:
    client, counters = ScriptedClient(), Counters()
    client.gates[Signal.TRACES] = threading.Event()
    outbox = Outbox(client, counters, 100)
    for _ in range(5):
        outbox.put(Parcel(Signal.TRACES, bytes(40), 3))
    assert counters.value(LOST, stage="send", cause="queue_full") == 9
    client.gates[Signal.TRACES].set()
    close(outbox)
    assert len(client.sent) == 2


def test_a_service_that_is_not_there_is_told_once_counted_and_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client, counters = ScriptedClient(), Counters()
    client.answers[Signal.LOGS] = MISSING
    outbox = Outbox(client, counters, 1 << 20)
    for _ in range(5):
        outbox.put(Parcel(Signal.LOGS, b"ledger", 2))
    close(outbox)
    assert len(client.sent) == 1
    assert counters.value(LOST, stage="send", cause="refused") == 10
    assert caplog.text.count("the ledger stays on disk") == 1


def test_an_unexpected_error_costs_one_parcel_and_not_its_signal(caplog: pytest.LogCaptureFixture) -> None:
    client, counters = ScriptedClient(), Counters()
    client.failing = {b"odd": RuntimeError("what no client should raise")}
    outbox = Outbox(client, counters, 1 << 20)
    for payload in (b"first", b"odd", b"last"):
        outbox.put(Parcel(Signal.TRACES, payload, 3))
    close(outbox)
    assert [payload for _, payload in client.sent] == [b"first", b"last"]
    assert counters.value(LOST, stage="send", cause="error") == 3
    assert "sending traces failed: RuntimeError: what no client should raise" in caplog.text


def test_partial_success_counts_the_rejected_and_is_not_sent_again() -> None:
    client, counters = ScriptedClient(), Counters()
    client.answers[Signal.TRACES] = SendResult(SendStatus.PARTIAL, rejected_count=3)
    outbox = Outbox(client, counters, 1 << 20)
    outbox.put(Parcel(Signal.TRACES, b"spans", 5))
    close(outbox)
    assert len(client.sent) == 1
    assert counters.value(LOST, stage="send", cause="rejected") == 3


def test_a_backend_that_is_down_does_not_hold_up_the_end() -> None:
    client, counters = ScriptedClient(), Counters()
    client.answers[Signal.TRACES] = SendResult(SendStatus.RETRYABLE, "connection refused")
    outbox = Outbox(client, counters, 1 << 20)
    outbox.put(Parcel(Signal.TRACES, b"spans", 5))
    outbox.put(Parcel(Signal.TRACES, b"more", 2))
    outbox.close(time.monotonic())
    assert counters.value(LOST, stage="send", cause="not_drained") == 7
    outbox.put(Parcel(Signal.TRACES, b"late", 1))
    assert counters.value(LOST, stage="send", cause="queue_full") == 1
