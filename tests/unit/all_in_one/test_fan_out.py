# Every batch reaches every sink; it is settled when all have settled it; a slow one gets a lane.
import threading
import time

import pytest

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.receipt import Receipt
from otel_llmprism.service.all_in_one.fan_out import FanOut, Lane

SECOND = 10**9


class RecordingSink:
    """Keeps batches; settles them when told; holds `send` while closed."""

    def __init__(self, *, is_open: bool = True, fails: bool = False) -> None:
        self.batches: list[Batch] = []
        self.calls: list[str] = []
        self.gate = threading.Event()
        self.arrived = threading.Semaphore(0)
        self._fails = fails
        if is_open:
            self.gate.set()

    def start(self) -> None:
        if self._fails:
            raise OSError("no room")
        self.calls.append("start")

    def send(self, batch: Batch, /) -> None:
        self.gate.wait()
        self.batches.append(batch)
        self.arrived.release()

    def stop(self, deadline_ns: int) -> None:
        del deadline_ns
        self.gate.set()
        self.calls.append("stop")

    def settle_all(self) -> None:
        for batch in self.batches:
            batch.receipt.settle()


def build_batch(settled: list[int], number: int = 0, size: int = 10) -> Batch:
    return Batch(Signal.TRACES, bytes(size), Receipt(lambda: settled.append(number)), 0)


def test_a_batch_is_settled_when_every_sink_has_settled_it() -> None:
    first, second = RecordingSink(), RecordingSink()
    fan_out = FanOut([first, second])
    settled: list[int] = []
    fan_out.send(build_batch(settled))
    first.settle_all()
    assert settled == []
    second.settle_all()
    assert settled == [0]


def test_a_single_sink_settles_alone() -> None:
    only = RecordingSink()
    settled: list[int] = []
    FanOut([only]).send(build_batch(settled))
    only.settle_all()
    assert settled == [0]


def test_a_failed_start_stops_what_runs() -> None:
    first = RecordingSink()
    with pytest.raises(OSError, match="no room"):
        FanOut([first, RecordingSink(fails=True)]).start()
    assert first.calls == ["start", "stop"]


def test_a_slow_sink_does_not_hold_the_others_until_its_lane_is_full() -> None:
    fast, slow = RecordingSink(), RecordingSink(is_open=False)
    fan_out = FanOut([fast, Lane(slow, max_bytes=30)])
    fan_out.start()
    settled: list[int] = []
    for number in range(3):
        fan_out.send(build_batch(settled, number))
    assert len(fast.batches) == 3
    is_through = threading.Event()

    def send_one_more() -> None:
        fan_out.send(build_batch(settled, 3))
        is_through.set()

    sender = threading.Thread(target=send_one_more)
    sender.start()
    assert fast.arrived.acquire(timeout=5)
    assert not is_through.wait(0.05)
    slow.gate.set()
    assert is_through.wait(5)
    sender.join()
    for _ in range(4):
        assert slow.arrived.acquire(timeout=5)
    fan_out.stop(time.monotonic_ns() + 5 * SECOND)
    assert slow.batches == fast.batches


def test_what_waits_in_a_lane_is_handed_on_before_it_stops() -> None:
    slow = RecordingSink()
    lane = Lane(slow, max_bytes=1000)
    settled: list[int] = []
    for number in range(5):
        lane.send(build_batch(settled, number))
    lane.start()
    lane.stop(time.monotonic_ns() + 5 * SECOND)
    assert len(slow.batches) == 5


def test_a_lane_whose_sink_hangs_stops_at_the_deadline_and_settles_nothing() -> None:
    stuck = RecordingSink(is_open=False)
    lane = Lane(stuck, max_bytes=1000)
    lane.start()
    settled: list[int] = []
    for number in range(3):
        lane.send(build_batch(settled, number))
    lane.stop(time.monotonic_ns() + SECOND // 20)
    assert settled == []
    assert len(stuck.batches) == 1  # the one that its stop let go


def test_a_request_larger_than_the_lane_passes_alone() -> None:
    sink = RecordingSink()
    lane = Lane(sink, max_bytes=5)
    lane.start()
    lane.send(build_batch([], size=50))
    assert sink.arrived.acquire(timeout=5)
    lane.stop(time.monotonic_ns() + SECOND)
