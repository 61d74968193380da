# The ledgers a node keeps, as somebody asks for them later: which runs there are, and their steps within
# bounds. Reads segments; knows no spans.
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from otel_llmprism.exporters.step_records import Rows, list_start_times
from otel_llmprism.native.ledger_frames import Frame
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerBatch, LedgerBody, LedgerReader, LedgerSource
from otel_llmprism.receivers.ledger_files import Segment, list_segments, read_segment
from otel_llmprism.semconv.ledger import EVENT_LEDGER

_LATEST_NS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StepBounds:
    """What is asked for; the default is everything. Both ends belong to it."""

    engine: str = ""
    run: str = ""  # or how it starts
    first_step: int = 0
    last_step: int = _LATEST_NS
    from_ns: int = 0
    to_ns: int = _LATEST_NS
    kinds: frozenset[int] = frozenset()

    def has_segment(self, segment: Segment) -> bool:
        owner = segment.owner
        return self.engine in {"", owner.engine_id} and owner.run.startswith(self.run)

    def has_frame(self, frame: Frame) -> bool:
        is_within = frame.first_step <= self.last_step and frame.last_step >= self.first_step
        # A frame's time is that of its sending: its steps lie before.
        return frame.event_name == EVENT_LEDGER and is_within and frame.time_ns >= self.from_ns

    def select_rows(self, batch: LedgerBatch) -> Rows:
        steps = batch.tables.steps
        starts = list_start_times(steps, batch.chunks)
        is_within = (steps.step >= np.uint64(self.first_step)) & (steps.step <= np.uint64(self.last_step))
        is_within &= (starts >= self.from_ns) & (starts <= self.to_ns)
        if self.kinds:
            is_within &= np.isin(steps.kind, list(self.kinds))
        return np.flatnonzero(is_within)


@dataclass(slots=True)
class LedgerHistory:
    """The segments at `place` (a folder or one file); problems are collected, never raised."""

    place: Path
    counters: Counters = field(default_factory=Counters)
    problems: list[str] = field(default_factory=list)

    def list_segments(self, bounds: StepBounds) -> list[Segment]:
        if not self.place.exists():
            self._report(self.place, 0, "there is no such file or folder")
            return []
        return [segment for segment in list_segments(self.place, self._report) if bounds.has_segment(segment)]

    def read_batches(
        self, bounds: StepBounds, is_wanted: Callable[[Frame], bool] | None = None
    ) -> Iterator[LedgerBatch]:
        """Yield the ledger of every run within bounds, run by run, in order."""
        wanted = is_wanted or bounds.has_frame
        reader = LedgerReader(self.counters)
        for batch in reader.read_bodies(self._list_bodies(bounds, wanted)):
            if isinstance(batch, LedgerBatch):
                yield batch

    def list_sources(self, bounds: StepBounds) -> list[LedgerSource]:
        return list(dict.fromkeys(segment.source for segment in self.list_segments(bounds)))

    def _list_bodies(self, bounds: StepBounds, wanted: Callable[[Frame], bool]) -> Iterator[LedgerBody]:
        for segment in self.list_segments(bounds):
            yield from read_segment(segment, self._report, wanted)

    def _report(self, path: Path, at: int, why: str) -> None:
        self.problems.append(f"{path}: at byte {at}: {why}" if at else f"{path}: {why}")
