# The pipeline thread: takes batches from the feed, leads them through the stages in order, gives what
# comes out to the sink, and flushes stages every 100 ms. Knows no receiver and no exporter.
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress import Feed
from otel_llmprism.pipeline.log_pace import LogPace
from otel_llmprism.pipeline.ports import Sink
from otel_llmprism.pipeline.stage import END_OF_TIME_NS, Stage
from otel_llmprism.semconv.pipeline import PIPELINE_ERRORS

FLUSH_INTERVAL_NS = 100_000_000
_PAUSE_S = 0.1  # after a feed that failed, so that one that fails for good does not take a whole core
_LOGGER = logging.getLogger(__name__)


class Flow:
    """One thread; a stage that raises is counted and passed over, a batch is never dropped for it."""

    def __init__(
        self,
        feed: Feed,
        stages: Sequence[Stage[Batch, Batch]],
        sink: Sink,
        counters: Counters,
        monotonic_ns: Callable[[], int],
    ) -> None:
        self._feed = feed
        self._stages = tuple(stages)
        self._sink = sink
        self._counters = counters
        self._monotonic_ns = monotonic_ns
        self._log_pace = LogPace(monotonic_ns)
        self._drain_until_ns: int | None = None
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def drain(self, deadline_ns: int) -> bool:
        """Take what the closed feed still has, until the deadline, then flush all; False when late."""
        self._drain_until_ns = deadline_ns
        return self.join(deadline_ns)

    def join(self, deadline_ns: int) -> bool:
        """Wait for the thread to end; False when it did not by the deadline."""
        self._thread.join(max(0.0, (deadline_ns - self._monotonic_ns()) / 1e9))
        return not self._thread.is_alive()

    def _run(self) -> None:
        next_flush_ns = self._monotonic_ns() + FLUSH_INTERVAL_NS
        while True:
            drain_until_ns = self._drain_until_ns  # read before the take: after it, None means empty
            now_ns = self._monotonic_ns()
            if drain_until_ns is not None and now_ns >= drain_until_ns:
                break
            batch = self._take(max(0, next_flush_ns - now_ns) / 1e9)
            if batch is not None:
                self._advance((batch,), 0)
            elif drain_until_ns is not None:
                break
            now_ns = self._monotonic_ns()
            if now_ns >= next_flush_ns:
                self._flush(now_ns)
                self._feed.record_gauges(now_ns)
                next_flush_ns = now_ns + FLUSH_INTERVAL_NS
        self._flush(END_OF_TIME_NS)

    def _take(self, timeout_s: float) -> Batch | None:
        try:
            return self._feed.take(timeout_s)
        except Exception as error:  # noqa: BLE001 - without this thread the log fills and nothing says why
            self._note_failure(self._feed, error)
            time.sleep(_PAUSE_S)
            return None

    def _advance(self, batches: Iterable[Batch], index: int) -> None:
        """Lead batches through the stages from `index` on."""
        if index == len(self._stages):
            for batch in batches:
                self._send(batch)
            return
        for batch in batches:
            self._advance(self._consume(self._stages[index], batch), index + 1)

    def _flush(self, due_ns: int) -> None:
        for index, stage in enumerate(self._stages):
            try:
                due = list(stage.flush(due_ns))
            except Exception as error:  # noqa: BLE001 - one broken stage must not stop the others
                self._note_failure(stage, error)
                continue
            self._advance(due, index + 1)

    def _consume(self, stage: Stage[Batch, Batch], batch: Batch) -> Iterable[Batch]:
        try:
            return list(stage.consume(batch))
        except Exception as error:  # noqa: BLE001 - what a stage adds is worth less than what it was given
            self._note_failure(stage, error)
            return (batch,)

    def _send(self, batch: Batch) -> None:
        try:
            self._sink.send(batch)
        except Exception as error:  # noqa: BLE001 - not settled, so the log gives it again after the next start
            self._note_failure(self._sink, error)

    def _note_failure(self, part: object, error: Exception) -> None:
        name = type(part).__name__
        self._counters.add(PIPELINE_ERRORS, part=name)
        if self._log_pace.is_due(name):  # a stage that always fails must not fill the log
            _LOGGER.error("%s failed; the flow goes on without it", name, exc_info=error)
