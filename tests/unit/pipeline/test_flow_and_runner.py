import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress import Feed, build_ingress
from otel_llmprism.pipeline.ingress_config import Durability, IngressConfig, LogConfig
from otel_llmprism.pipeline.log_pace import LogPace
from otel_llmprism.pipeline.ports import Outcome, Sink, Source
from otel_llmprism.pipeline.runner import Runner, ShutdownConfig
from otel_llmprism.pipeline.stage import END_OF_TIME_NS, Stage
from otel_llmprism.testing.clocks import FakeClock
from otel_llmprism.testing.sinks import FailingSink, RecordingSink, StuckSink


class Delay:
    """Holds every batch until the end, or until a flush after `due_ns`."""

    def __init__(self, due_ns: int = END_OF_TIME_NS) -> None:
        self.held: list[Batch] = []
        self.due_ns = due_ns

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        self.held.append(batch)
        return ()

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        if due_ns < self.due_ns:
            return ()
        given, self.held = self.held, []
        return given


class Mark:
    """Appends a mark to the payload."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        yield Batch(batch.signal, batch.payload + self._mark, batch.receipt, batch.arrived_ns)

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        return ()


class Broken:
    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        raise ValueError("broken")

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        raise ValueError("broken")


class NotingPart:
    """A sink and a source that write down what happens to them, and in what order."""

    def __init__(self, name: str, notes: list[str], *, fails: bool = False) -> None:
        self._name = name
        self._notes = notes
        self._fails = fails

    def start(self) -> None:
        if self._fails:
            raise OSError("port 4317 is in use")
        self._notes.append(f"start {self._name}")

    def send(self, batch: Batch, /) -> None:
        self._notes.append(f"send {batch.payload.decode()}")
        batch.receipt.settle()

    def stop(self, deadline_ns: int) -> None:
        self._notes.append(f"stop {self._name}")


class StuckSource:
    def __init__(self) -> None:
        self.freed = threading.Event()

    def start(self) -> None:
        """Need nothing."""

    def stop(self, deadline_ns: int) -> None:
        self.freed.wait()


def build(
    sink: Sink,
    stages: list[Stage[Batch, Batch]] | None = None,
    sources: list[Source] | None = None,
    *,
    counters: Counters | None = None,
    feed: Feed | None = None,
    total_s: float = 20.0,
) -> tuple[Feed, Runner]:
    counters = counters or Counters()
    feed = feed or build_ingress(IngressConfig(), counters)
    shutdown = ShutdownConfig(total_s=total_s)
    return feed, Runner(feed, stages or [], sink, sources or [], counters=counters, shutdown=shutdown)


def build_logged(tmp_path: Path, counters: Counters) -> Feed:
    return build_ingress(IngressConfig(Durability.PROCESS, log=LogConfig(tmp_path / "log")), counters)


def test_batches_go_through_the_stages_in_order_to_the_sink() -> None:
    sink = RecordingSink()
    feed, runner = build(sink, [Mark(b"1"), Mark(b"2")])
    runner.start()
    feed.offer(Signal.TRACES, b"a")
    feed.offer(Signal.LOGS, b"b")
    assert sink.wait_for_count(2)
    assert runner.stop() == []
    assert sink.list_payloads() == [b"a12", b"b12"]


def test_stage_that_raises_is_counted_and_its_batch_goes_on_unchanged() -> None:
    counters, sink = Counters(), RecordingSink()
    feed, runner = build(sink, [Mark(b"1"), Broken(), Mark(b"2")], counters=counters)
    runner.start()
    feed.offer(Signal.TRACES, b"a")
    assert sink.wait_for_count(1)
    assert runner.stop() == []
    assert sink.list_payloads() == [b"a12"]
    assert counters.value("llmprism.pipeline.errors", part="Broken") >= 2, "consume and the last flush"


def test_stage_that_always_fails_is_counted_each_time_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters, sink = Counters(), RecordingSink()
    feed, runner = build(sink, [Broken()], counters=counters)
    runner.start()
    for _ in range(20):
        feed.offer(Signal.TRACES, b"a")
    assert sink.wait_for_count(20)
    assert runner.stop() == []
    assert counters.value("llmprism.pipeline.errors", part="Broken") >= 20
    assert [record.message for record in caplog.records].count(
        "Broken failed; the flow goes on without it"
    ) == 1


def test_the_same_trouble_is_due_again_after_a_minute() -> None:
    clock = FakeClock()
    pace = LogPace(clock)
    assert [pace.is_due("a"), pace.is_due("a"), pace.is_due("b")] == [True, False, True]
    clock.advance(seconds=59.9)
    assert not pace.is_due("a")
    clock.advance(seconds=0.1)
    assert [pace.is_due("a"), pace.is_due("a")] == [True, False]


def test_sink_that_raises_does_not_end_the_flow() -> None:
    counters, sink = Counters(), FailingSink(failures=1)
    feed, runner = build(sink, counters=counters)
    runner.start()
    feed.offer(Signal.TRACES, b"a")
    feed.offer(Signal.TRACES, b"b")
    runner.stop()
    assert sink.sent == [b"b"]
    assert counters.value("llmprism.pipeline.errors", part="FailingSink") == 1
    assert counters.value("llmprism.lost", stage="export", cause="shutdown") == 1, "memory cannot send again"


def test_feed_that_raises_does_not_end_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    counters, sink = Counters(), RecordingSink()
    feed, runner = build(sink, counters=counters)
    take, failures = feed.take, iter([MemoryError("no room for the record")])

    def take_second_time(timeout_s: float) -> Batch | None:
        for error in failures:
            raise error
        return take(timeout_s)

    monkeypatch.setattr(feed, "take", take_second_time)
    runner.start()
    feed.offer(Signal.TRACES, b"a")
    assert sink.wait_for_count(1)
    assert runner.stop() == []
    assert counters.value("llmprism.pipeline.errors", part="MemoryIngress") == 1


def test_flush_comes_by_itself_and_its_pieces_pass_the_stages_behind() -> None:
    sink = RecordingSink()
    feed, runner = build(sink, [Mark(b"1"), Delay(due_ns=0), Mark(b"2")])
    runner.start()
    feed.offer(Signal.TRACES, b"a")
    assert sink.wait_for_count(1)
    runner.stop()
    assert sink.list_payloads() == [b"a12"]


def test_stop_drains_the_feed_and_gives_what_stages_held() -> None:
    sink = RecordingSink()
    feed, runner = build(sink, [Delay()])
    runner.start()
    for number in range(50):
        feed.offer(Signal.TRACES, b"%d" % number)
    assert runner.stop() == []
    assert sink.list_payloads() == [b"%d" % number for number in range(50)]
    assert feed.offer(Signal.TRACES, b"late").outcome is Outcome.UNAVAILABLE


def test_sink_starts_first_and_sources_stop_first() -> None:
    notes: list[str] = []
    sources: list[Source] = [NotingPart("source", notes)]
    feed, runner = build(NotingPart("sink", notes), [Delay()], sources)
    runner.start()
    feed.offer(Signal.TRACES, b"a")
    runner.stop()
    assert notes == ["start sink", "start source", "stop source", "send a", "stop sink"]


def test_source_that_cannot_start_stops_all_the_rest_and_is_told() -> None:
    notes: list[str] = []
    sources: list[Source] = [NotingPart("one", notes), NotingPart("two", notes, fails=True)]
    _, runner = build(NotingPart("sink", notes), sources=sources)
    with pytest.raises(OSError, match="port 4317 is in use"):
        runner.start()
    assert notes[:2] == ["start sink", "start one"]
    assert {"stop one", "stop sink"} <= set(notes)


def test_runner_starts_and_stops_twice_over() -> None:
    sink = RecordingSink()
    feed, runner = build(sink)
    for number in range(2):
        runner.start()
        feed.offer(Signal.TRACES, b"%d" % number)
        assert runner.stop() == []
    assert sink.list_payloads() == [b"0", b"1"]


def test_stop_without_start_is_quiet() -> None:
    _, runner = build(RecordingSink())
    assert runner.stop() == []


def test_stuck_sink_does_not_make_a_stuck_shutdown_and_the_log_keeps_all(
    tmp_path: Path, counters: Counters
) -> None:
    sink = StuckSink()
    feed, runner = build(sink, feed=build_logged(tmp_path, counters), total_s=0.4)
    runner.start()
    for number in range(3):
        feed.offer(Signal.TRACES, b"%d" % number)
    assert sink.entered.wait(10)
    began = time.monotonic()
    assert runner.stop() == ["sink StuckSink", "pipeline"]
    assert time.monotonic() - began < 10, "a bound far above 0.4 s: only a hang can pass it"
    sink.free()
    again = RecordingSink()
    _, next_runner = build(again, feed=build_logged(tmp_path, counters))
    next_runner.start()
    assert again.wait_for_count(3)
    assert next_runner.stop() == []
    assert again.list_payloads() == [b"0", b"1", b"2"]


def test_stuck_source_is_left_behind_and_its_offers_are_refused() -> None:
    source, sink = StuckSource(), RecordingSink()
    feed, runner = build(sink, sources=[source], total_s=0.4)
    runner.start()
    feed.offer(Signal.TRACES, b"a")
    assert runner.stop() == ["source StuckSource"]
    assert feed.offer(Signal.TRACES, b"b").outcome is Outcome.UNAVAILABLE
    assert sink.list_payloads() == [b"a"]
    source.freed.set()
