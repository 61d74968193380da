# Parts of steps that rings tell one by one (a rank's times, its collectives, its phases), waiting for the
# step they belong to. Bounded: no part outlives the first whole step after its own, and parts of steps that
# no scheduler tells of (it runs on another node) go after a while.
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import U32, U64
from otel_llmprism.native.ring_records import Kind
from otel_llmprism.receivers.ring_slots import DTYPES, Rows

Bools = npt.NDArray[np.bool_]


class PendingParts:
    """One kind of parts; `count(cause, amount)` is told of those that are lost, under `unmatched_{name}`."""

    def __init__(self, kind: Kind, name: str, count: Callable[[str, int], None]) -> None:
        self.rows: Rows = np.zeros(0, DTYPES[kind])
        self._cause = f"unmatched_{name}"
        self._count = count
        self._looked_step = -1  # the highest step among those that were alone when looked at last

    def add(self, fresh: Rows, done_step: int) -> None:
        """Take in parts; those of steps up to `done_step` come too late and are counted."""
        if not len(fresh):
            return
        is_late = fresh["step"].astype(np.int64) <= done_step
        if is_late.any():
            self._count("late_part", int(is_late.sum()))
            fresh = fresh[~is_late]
        self.rows = np.concatenate([self.rows, fresh]) if len(self.rows) else fresh

    def match(self, steps: U64) -> tuple[npt.NDArray[np.int64], Bools]:
        """Return each part's row in the sorted `steps`, and whether it is there."""
        return match_steps(steps, self.rows["step"])

    def select(self, steps: U64) -> tuple[Rows, U32]:
        """Return the parts of `steps`, and the row there that each belongs to; nothing is released."""
        if not len(self.rows):
            return self.rows, np.zeros(0, dtype=np.uint32)
        row, is_here = self.match(steps)
        return self.rows[is_here], row[is_here].astype(np.uint32)

    def release(self, done_step: int, known: U64) -> None:
        """Let go of the parts up to `done_step`; those of none of the `known` steps are counted."""
        if not len(self.rows):
            return
        steps = self.rows["step"]
        is_gone = steps <= done_step
        self._count(self._cause, int(np.sum(is_gone & ~np.isin(steps, known))))
        self.rows = self.rows[~is_gone]

    def drop_alone(self, waiting: U64) -> None:
        """Let go of parts whose step is not `waiting` and that were alone at the call before, too."""
        steps = self.rows["step"]
        is_alone = ~np.isin(steps, waiting)
        # By when they were seen, not by their own times: an exporter that starts late reads old records.
        is_gone = is_alone & (steps <= self._looked_step)
        self._count(self._cause, int(is_gone.sum()))
        self._looked_step = int(steps[is_alone].max(initial=0)) if is_alone.any() else -1
        self.rows = self.rows[~is_gone]


def match_steps(steps: U64, wanted: U64) -> tuple[npt.NDArray[np.int64], Bools]:
    """Return each wanted step's row in the sorted `steps`, and whether it is there."""
    rows = np.searchsorted(steps, wanted)
    is_here = np.zeros(len(wanted), dtype=np.bool_)
    within = rows < len(steps)
    is_here[within] = steps[rows[within]] == wanted[within]
    return rows, is_here
