# What admission costs in memory when a small request stands for very many records.
import threading
import tracemalloc

import pytest

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import NO_KEYS, RecordCounts, check, scan
from otel_llmprism.native.otlp_twin_wire import encode_varint
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ports import ACCEPTED, Verdict
from otel_llmprism.receivers import admission
from otel_llmprism.receivers.admission import Admission
from otel_llmprism.receivers.otlp_answers import OK_ANSWER, Reply

MIB = 1 << 20


class MeasuringIngress:
    def __init__(self) -> None:
        self.memory = 0

    def offer(self, _signal: Signal, _payload: bytes, /) -> Verdict:
        self.memory = tracemalloc.get_traced_memory()[0]
        return ACCEPTED


def make_empty_logs(count: int) -> bytes:
    scope = b"\x12\x00" * count
    resource = b"\x12" + encode_varint(len(scope)) + scope
    return b"\x0a" + encode_varint(len(resource)) + resource


def test_no_rows_are_held_while_a_request_waits_to_be_accepted() -> None:
    ingress = MeasuringIngress()
    payload = make_empty_logs(200_000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        answer = Admission(ingress, Counters(), NO_KEYS, "test").admit(Signal.LOGS, payload)
    finally:
        tracemalloc.stop()
    assert answer == OK_ANSWER
    assert scan(payload, Signal.LOGS).record_count == 200_000
    assert ingress.memory - before < MIB, "the rows take 20 MB"


def test_large_requests_are_scanned_only_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, lock = 0, 0, threading.Lock()
    may_go_on = threading.Event()
    entered = threading.Semaphore(0)

    def check_slowly(payload: bytes, signal: str) -> RecordCounts:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        entered.release()
        may_go_on.wait(10)
        with lock:
            inside -= 1
        return check(payload, signal)

    monkeypatch.setattr(admission, "check", check_slowly)
    monkeypatch.setattr(admission, "_LARGE_SCANS", threading.Semaphore(2))
    large, small = make_empty_logs(40_000), make_empty_logs(10)
    gate = Admission(MeasuringIngress(), Counters(), NO_KEYS, "test")
    threads = [threading.Thread(target=gate.admit, args=(Signal.LOGS, large)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        assert entered.acquire(timeout=10)
    threads.append(threading.Thread(target=gate.admit, args=(Signal.LOGS, small)))
    threads[-1].start()
    assert entered.acquire(timeout=10), "a small one need not wait"
    may_go_on.set()
    for thread in threads:
        thread.join(10)
    assert most == 3


def test_request_for_which_there_is_no_memory_may_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> RecordCounts:
        raise MemoryError

    monkeypatch.setattr(admission, "check", refuse)
    counters = Counters()
    answer = Admission(MeasuringIngress(), counters, NO_KEYS, "test").admit(Signal.LOGS, b"")
    assert answer.reply is Reply.UNAVAILABLE
    assert answer.retry_after_s > 0
    assert counters.value("llmprism.intake.refused", stage="test", cause="no_memory") == 1
