# The steps a model is trained on, bounded: spread over work and over time, so that what is recent counts and
# what is rare is not forgotten. Which steps may train at all is the caller's: it adds no others.
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_llmprism.baseline.expected.thinning import choose_rows, number_cells
from otel_llmprism.model.steps import F64, U8, U64
from otel_llmprism.model.work import WorkTable

SECOND_NS = 10**9


@dataclass(frozen=True, slots=True)
class ReservoirConfig:
    steps: int = 20_000
    slack: float = 0.25  # thinned when it holds so much more: thinning costs time
    max_names: int = 32
    groups: int = 50  # wanted; a group is a stretch of time
    shortest_group_ns: int = SECOND_NS
    longest_group_ns: int = 600 * SECOND_NS


class Reservoir:
    """Holds at most (1 + slack) x steps rows. Deterministic for one generator and one order of calls."""

    def __init__(self, config: ReservoirConfig, rng: np.random.Generator) -> None:
        self._config = config
        self._rng = rng
        self._names: tuple[str, ...] = ()
        self._kind: U8 = np.zeros(0, np.uint8)
        self._values: F64 = np.zeros((0, 0))
        self._cycle_ns: U64 = np.zeros(0, np.uint64)
        self._time_ns: U64 = np.zeros(0, np.uint64)
        self._key: F64 = np.zeros(0)  # drawn once a row; the smaller, the longer it stays

    def __len__(self) -> int:
        return len(self._kind)

    def add(self, work: WorkTable, cycle_ns: U64, time_ns: U64) -> None:
        """Take rows of ended steps; features that come later are NaN in the rows before."""
        limit = int(self._config.steps * (1 + self._config.slack))
        for begin in range(0, len(work), max(1, limit)):  # a flood comes in bounded pieces
            rows = slice(begin, begin + max(1, limit))
            self._append(
                WorkTable(work.kind[rows], work.names, work.values[rows]), cycle_ns[rows], time_ns[rows]
            )
            if len(self) > limit:
                self._thin()

    def read(self) -> tuple[WorkTable, U64, npt.NDArray[np.int64]]:
        """Return work, cycles and groups, oldest first; steps of one stretch of time share a group."""
        order = np.argsort(self._time_ns, kind="stable")
        work = WorkTable(self._kind[order], self._names, self._values[order])
        return work, self._cycle_ns[order], self._group(self._time_ns[order])

    def read_times(self) -> U64:
        """Return the times of the rows of `read`, to put them into another reservoir after a restart."""
        return np.sort(self._time_ns, kind="stable")

    def _append(self, work: WorkTable, cycle_ns: U64, time_ns: U64) -> None:
        new = [name for name in work.names if name not in self._names]
        self._names += tuple(new[: self._config.max_names - len(self._names)])
        before = np.full((len(self), len(self._names)), np.nan)
        before[:, : self._values.shape[1]] = self._values
        after = np.column_stack([work.read_feature(name) for name in self._names]) if self._names else None
        added = np.zeros((len(work), 0)) if after is None else after
        self._values = np.concatenate([before, added])
        self._kind = np.concatenate([self._kind, work.kind])
        self._cycle_ns = np.concatenate([self._cycle_ns, cycle_ns.astype(np.uint64)])
        self._time_ns = np.concatenate([self._time_ns, time_ns.astype(np.uint64)])
        self._key = np.concatenate([self._key, self._rng.random(len(work))])

    def _thin(self) -> None:
        order = np.argsort(self._time_ns, kind="stable")
        cells = number_cells(self._kind[order], self._values[order])
        kept = order[choose_rows(cells, self._config.steps, self._key[order])]
        self._kind, self._values, self._key = self._kind[kept], self._values[kept], self._key[kept]
        self._cycle_ns, self._time_ns = self._cycle_ns[kept], self._time_ns[kept]

    def _group(self, time_ns: U64) -> npt.NDArray[np.int64]:
        if not len(time_ns):
            return np.zeros(0, np.int64)
        span = int(time_ns[-1] - time_ns[0])
        wanted = span // max(1, self._config.groups) + 1
        width = min(max(wanted, self._config.shortest_group_ns), self._config.longest_group_ns)
        group: npt.NDArray[np.int64] = ((time_ns - time_ns[0]) // np.uint64(width)).astype(np.int64)
        return group
