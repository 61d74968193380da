# One sink in front of several: every batch goes to each, and is settled when all have settled it.
# A slow one gets a lane of its own, so that the others go on until the lane is full. Knows no exporter.
import threading
import time
from collections import deque
from collections.abc import Sequence

from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.ports import Sink


class FanOut:
    """Implements ports.Sink; blocks while one of its sinks blocks, so nothing is lost."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)

    def start(self) -> None:
        """Start all; on failure those that run are stopped."""
        started: list[Sink] = []
        try:
            for sink in self._sinks:
                sink.start()
                started.append(sink)
        except BaseException:
            for sink in started:
                sink.stop(time.monotonic_ns())
            raise

    def send(self, batch: Batch, /) -> None:
        if len(self._sinks) > 1:
            batch.receipt.add_pieces(len(self._sinks) - 1)
        for sink in self._sinks:
            sink.send(batch)

    def stop(self, deadline_ns: int) -> None:
        for sink in self._sinks:
            sink.stop(deadline_ns)


class Lane:
    """A Sink in front of a slow one: up to `max_bytes` wait here before `send` blocks."""

    def __init__(self, sink: Sink, max_bytes: int) -> None:
        self._sink = sink
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._waiting: deque[Batch] = deque()
        self._bytes = 0
        self._is_stopping = False
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="llmprism-lane", daemon=True)

    def start(self) -> None:
        self._sink.start()
        self._thread.start()

    def send(self, batch: Batch, /) -> None:
        size = len(batch.payload)
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_stopping or not self._bytes or self._bytes + size <= self._max_bytes
            )
            self._waiting.append(batch)
            self._bytes += size
            self._changed.notify_all()

    def stop(self, deadline_ns: int) -> None:
        """Hand on what waits until `deadline_ns`; the rest stays unsettled, so the log keeps it."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            left_s = (deadline_ns - time.monotonic_ns()) / 1e9
            # A sink that hangs would use up the time in which it could finish what it has.
            self._changed.wait_for(lambda: not self._bytes, max(0.0, left_s / 2))
            self._is_over = True
            self._changed.notify_all()
        self._sink.stop(deadline_ns)
        if self._thread.ident is not None:  # else it was never started
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_over)
                if self._is_over or not self._waiting:
                    return
                batch = self._waiting.popleft()
            self._sink.send(batch)
            with self._changed:
                self._bytes -= len(batch.payload)
                self._changed.notify_all()
