# Batches of step records -> a bounded sample of each instance's steps, in the order of their time.
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import F64, U8, U64
from otel_llmprism.model.work import STANDARD_FEATURES, WorkTable
from otel_llmprism.native.ring_codes import StepKind
from otel_llmprism.receivers.step_records import RecordBatch

I64 = npt.NDArray[np.int64]
MAX_PARTS = 512  # instances beyond that share one part
MAX_PART_ROWS = 50_000
MAX_ROWS = 400_000  # of all parts together
UNCHARTED = (StepKind.IDLE, StepKind.DUMMY)


@dataclass(frozen=True, slots=True)
class StepPart:
    """Steps of one instance, oldest first."""

    engine: str
    instance: str
    work: WorkTable
    cycle_ns: U64
    start_ns: I64

    def __len__(self) -> int:
        return len(self.cycle_ns)

    def take(self, rows: slice | npt.NDArray[np.intp]) -> "StepPart":
        work = WorkTable(self.work.kind[rows], self.work.names, self.work.values[rows])
        return StepPart(self.engine, self.instance, work, self.cycle_ns[rows], self.start_ns[rows])


@dataclass(slots=True)
class StepGatherer:
    """Keeps a uniform sample where there is more than fits; the same seed keeps the same."""

    seed: int
    seen: int = 0
    kept: dict[tuple[str, str], list[StepPart]] = field(default_factory=dict)

    def add(self, batch: RecordBatch) -> None:
        """Take the charted rows of a batch."""
        charted = ~np.isin(batch.work.kind, UNCHARTED)
        pairs = batch.engine.astype(np.int64) << 32 | batch.instance
        for pair in np.unique(pairs[charted]).tolist():
            rows = np.flatnonzero(charted & (pairs == pair))
            key = (batch.engine_names[pair >> 32], batch.instance_names[pair & 0xFFFFFFFF])
            self._add_part(key, batch, rows)

    def _add_part(self, key: tuple[str, str], batch: RecordBatch, rows: npt.NDArray[np.intp]) -> None:
        if key not in self.kept and len(self.kept) >= MAX_PARTS:
            key = ("", "")
        work = WorkTable(batch.work.kind[rows], batch.work.names, batch.work.values[rows])
        parts = self.kept.setdefault(key, [])
        parts.append(StepPart(*key, work, batch.cycle_ns[rows], batch.start_ns[rows]))
        self.seen += len(rows)
        if sum(map(len, parts)) > 2 * MAX_PART_ROWS:
            self.kept[key] = [self._thin(_join_parts(parts), MAX_PART_ROWS)]

    def read_parts(self) -> list[StepPart]:
        """Return each instance's steps, no more than MAX_ROWS of all."""
        share = max(200, min(MAX_PART_ROWS, MAX_ROWS // max(1, len(self.kept))))
        joined = [self._thin(_join_parts(parts), share) for _, parts in sorted(self.kept.items())]
        return [part.take(np.argsort(part.start_ns, kind="stable")) for part in joined]

    def _thin(self, part: StepPart, most: int) -> StepPart:
        if len(part) <= most:
            return part
        rng = np.random.default_rng([self.seed, len(part), most])
        return part.take(np.sort(rng.choice(len(part), most, replace=False)))


def join_work(tables: list[WorkTable]) -> WorkTable:
    """Return the rows of all, NaN where a table does not tell a feature that another does."""
    told = dict.fromkeys(name for table in tables for name in table.names)
    names = (*(n for n in STANDARD_FEATURES if n in told), *(n for n in told if n not in STANDARD_FEATURES))
    values: list[F64] = [
        np.stack([table.read_feature(name) for name in names], axis=1)
        if names
        else np.empty((len(table.kind), 0))
        for table in tables
    ]
    kind: U8 = np.concatenate([table.kind for table in tables])
    return WorkTable(kind, names, np.concatenate(values))


def _join_parts(parts: list[StepPart]) -> StepPart:
    if len(parts) == 1:
        return parts[0]
    return StepPart(
        parts[0].engine, parts[0].instance, join_work([part.work for part in parts]),
        np.concatenate([part.cycle_ns for part in parts]),
        np.concatenate([part.start_ns for part in parts]),
    )  # fmt: skip
