# The life of a processor: sinks start first, sources stop first, everything within one deadline.
# Joins sources, feed, pipeline thread and sink; knows none of them beyond their ports.
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.flow import Flow
from otel_llmprism.pipeline.ingress import Feed
from otel_llmprism.pipeline.ports import Sink, Source
from otel_llmprism.pipeline.stage import Stage
from otel_llmprism.semconv.pipeline import PIPELINE_ERRORS

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShutdownConfig:
    """Shares of the total are upper bounds: time that sources and drain do not use goes to the sink."""

    total_s: float = 25.0  # below the 30 s that Kubernetes grants by default
    sources_share: float = 0.25
    drain_share: float = 0.4
    join_share: float = 0.05  # left for the pipeline thread once a stuck sink lets it go


class Runner:
    """`start` once everything listens; `stop` never takes longer than its total, whatever hangs."""

    def __init__(
        self,
        feed: Feed,
        stages: Sequence[Stage[Batch, Batch]],
        sink: Sink,
        sources: Sequence[Source],
        *,
        counters: Counters,
        shutdown: ShutdownConfig | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._feed = feed
        self._stages = stages
        self._sink = sink
        self._sources = sources
        self._counters = counters
        self._shutdown = shutdown or ShutdownConfig()
        self._monotonic_ns = monotonic_ns
        self._flow: Flow | None = None

    def start(self) -> None:
        """Start sink, feed, pipeline thread, sources; on failure stop what runs and raise as it came."""
        try:
            self._sink.start()
            self._feed.start()
            self._flow = Flow(self._feed, self._stages, self._sink, self._counters, self._monotonic_ns)
            self._flow.start()
            for source in self._sources:
                source.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> list[str]:
        """Stop sources, drain, stop the sink; give the names of what did not end in time.

        What did not reach the backend stays in the log, or is counted as lost when there is none.
        """
        start_ns = self._monotonic_ns()
        config = self._shutdown
        sources_ns = start_ns + int(config.total_s * config.sources_share * 1e9)
        drain_ns = sources_ns + int(config.total_s * config.drain_share * 1e9)
        end_ns = start_ns + int(config.total_s * 1e9)
        stuck = self._end_all(
            [(f"source {_name(source)}", source.stop) for source in self._sources], sources_ns
        )
        self._feed.close()
        flow, self._flow = self._flow, None
        is_drained = flow is None or flow.drain(drain_ns)
        stuck += self._end_all(
            [(f"sink {_name(self._sink)}", self._sink.stop)],
            end_ns - int(config.total_s * config.join_share * 1e9),
        )
        if flow is not None and not is_drained and not flow.join(end_ns):
            stuck.append("pipeline")
        self._feed.release()
        for name in stuck:
            _LOGGER.warning("%s did not stop in time", name)
        return stuck

    def _end_all(self, ends: Sequence[tuple[str, Callable[[int], None]]], deadline_ns: int) -> list[str]:
        """Call all at once, each in a thread that may be left behind; give the names of those that hang."""
        threads = [
            (name, threading.Thread(target=self._end, args=(name, end, deadline_ns), name=name, daemon=True))
            for name, end in ends
        ]
        for _, thread in threads:
            thread.start()
        for _, thread in threads:
            thread.join(max(0.0, (deadline_ns - self._monotonic_ns()) / 1e9))
        return [name for name, thread in threads if thread.is_alive()]

    def _end(self, name: str, end: Callable[[int], None], deadline_ns: int) -> None:
        try:
            end(deadline_ns)
        except Exception:
            self._counters.add(PIPELINE_ERRORS, part=name)
            _LOGGER.exception("%s failed while it stopped", name)


def _name(part: object) -> str:
    return type(part).__name__
