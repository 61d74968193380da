# Parts that can be exchanged while data flows: a sink and a stage behind a fixed place. Nothing is lost
# in between: what the old part still has goes to the new one.
from collections.abc import Iterable

from otel_llmprism.exporters.sink import OtlpSink
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.stage import END_OF_TIME_NS, Stage

BatchStage = Stage[Batch, Batch]


class PassOn:
    """A Stage that changes nothing: the place of one that is switched off."""

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        return (batch,)

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        del due_ns
        return ()


class SwitchStage:
    """A Stage; `switch` may be called from any thread and takes effect at the next flush."""

    def __init__(self, stage: BatchStage) -> None:
        self._stage = stage
        self._next: BatchStage | None = None

    def switch(self, stage: BatchStage) -> None:
        self._next = stage

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        return self._stage.consume(batch)

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        following, self._next = self._next, None
        if following is None:
            return self._stage.flush(due_ns)
        old, self._stage = self._stage, following
        return old.flush(END_OF_TIME_NS)


class SwitchSink:
    """A ports.Sink over an OtlpSink that `switch` exchanges."""

    def __init__(self, sink: OtlpSink) -> None:
        self._current = sink

    def start(self) -> None:
        self._current.start()

    def send(self, batch: Batch, /) -> None:
        while not (sink := self._current).try_send(batch):
            if sink is self._current:  # stopped for good, not exchanged
                sink.send(batch)
                return

    def stop(self, deadline_ns: int) -> None:
        self._current.stop(deadline_ns)

    def switch(self, sink: OtlpSink, deadline_ns: int) -> None:
        """Send through `sink` from now on; the old one may finish what it has until the deadline."""
        sink.start()
        old, self._current = self._current, sink
        # Never waits for room: this thread also takes the order to stop, and a backend may be down.
        old.hand_over(deadline_ns, self._inherit)

    def take_unsent(self) -> list[Batch]:
        """Give, after stop, what did not reach its end."""
        return self._current.take_unsent()

    def record_gauges(self) -> None:
        self._current.record_gauges()

    def _inherit(self, batch: Batch) -> None:
        sink = self._current
        if not sink.try_send(batch, waits_for_room=False):
            sink.send(batch)  # stopped: it keeps the batch as unsent
