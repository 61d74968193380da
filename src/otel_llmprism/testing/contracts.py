# What every stage, sink and source must keep, as functions that a test calls with a builder.
# They assert; they know no implementation.
from collections.abc import Callable, Iterable

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.ports import Sink, Source
from otel_llmprism.pipeline.receipt import Receipt
from otel_llmprism.pipeline.stage import END_OF_TIME_NS, Stage


class TrackedReceipt:
    """Makes a receipt and says afterwards whether it was settled."""

    def __init__(self) -> None:
        self.settled = 0
        self.receipt = Receipt(self._note)

    def _note(self) -> None:
        self.settled += 1


def build_batch(
    payload: bytes, signal: Signal = Signal.TRACES, arrived_ns: int = 0
) -> tuple[Batch, TrackedReceipt]:
    """Give a batch and the tracker of its receipt."""
    tracked = TrackedReceipt()
    return Batch(signal, payload, tracked.receipt, arrived_ns), tracked


def check_stage_contract(
    build_stage: Callable[[], Stage[Batch, Batch]], samples: Iterable[tuple[Signal, bytes]]
) -> None:
    """No receipt is settled early or leaked; nothing is left after the last flush; signals are kept."""
    stage = build_stage()
    assert list(stage.flush(END_OF_TIME_NS)) == [], "an empty stage has nothing to give"
    trackers: list[TrackedReceipt] = []
    outputs: list[Batch] = []
    for signal, payload in samples:
        batch, tracker = build_batch(payload, signal)
        trackers.append(tracker)
        given = list(stage.consume(batch))
        assert all(piece.signal == signal for piece in given if piece.receipt is batch.receipt)
        outputs += given
    outputs += list(stage.flush(END_OF_TIME_NS))
    assert list(stage.flush(END_OF_TIME_NS)) == [], "a second flush gives nothing"
    for piece in outputs:
        piece.receipt.settle()
    assert [tracker.settled for tracker in trackers] == [1] * len(trackers)


def check_sink_contract(build_sink: Callable[[], Sink], deadline_ns: int, payload: bytes = b"") -> None:
    """Start and stop may repeat; a stop without start is quiet; one batch is settled exactly once."""
    build_sink().stop(deadline_ns)
    sink = build_sink()
    sink.start()
    batch, tracker = build_batch(payload)
    sink.send(batch)
    sink.stop(deadline_ns)
    sink.stop(deadline_ns)
    assert tracker.settled == 1
    again = build_sink()
    again.start()
    again.stop(deadline_ns)


def check_source_contract(build_source: Callable[[], Source], deadline_ns: int) -> None:
    """A stop without start is quiet; start and stop work twice over; a second stop is quiet."""
    build_source().stop(deadline_ns)
    for _ in range(2):
        source = build_source()
        source.start()
        source.stop(deadline_ns)
        source.stop(deadline_ns)
