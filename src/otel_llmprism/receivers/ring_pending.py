# Parts of steps that wait between a drain and a chunk until their step is whole or its time is up.
# Bounded by the grace for missing parts: no part outlives the first whole step after its own, and ranks
# of steps that no scheduler tells of (it runs on another node) go after a few graces.
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import OUTPUT_MISSING, RANKS_MISSING, U8, U32, U64, UNKNOWN
from otel_llmprism.native.ring_records import Kind
from otel_llmprism.receivers.ring_slots import DTYPES, Rows, SlotGroups

# Worst bytes of a row on the wire; what a chunk takes stays well below its 1 MiB.
_STEP_BYTES, _RANK_BYTES, _MEMBER_BYTES = 140, 40, 28
_STEPS_BUDGET_BYTES = 400_000
_GRACES_WITHOUT_STEP = 10  # a step may be told of well after its fastest ranks

_MEMBER_DTYPE = np.dtype([("step", "<u8"), ("handle", "<u8"), ("slot", "<u4"), ("word", "<u4")])
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ReadySteps:
    """Whole steps in order, and their parts with the row of the step they belong to."""

    scheduled: Rows
    output: Rows  # one row a step; UNKNOWN throughout where it is missing
    ranks: Rows
    rank_row: U32
    members: Rows
    member_row: U32
    flags: U8


class PendingSteps:
    def __init__(self, expected_ranks: int | None, grace_ns: int, count: Callable[[str, int], None]) -> None:
        self._expected = expected_ranks
        self._grace_ns = grace_ns
        self._count = count
        self._seen_ranks: set[int] = set()
        self._done_step = -1
        self._scheduled: Rows = np.zeros(0, DTYPES[Kind.STEP_SCHEDULED])
        self._outputs: Rows = np.zeros(0, DTYPES[Kind.STEP_OUTPUT])
        self._ranks: Rows = np.zeros(0, DTYPES[Kind.STEP_RANK])
        self._members: Rows = np.zeros(0, _MEMBER_DTYPE)
        self._looked_ns = 0  # when ranks without a step were looked at last,
        self._looked_step = -1  # and the highest step among them

    def add(self, groups: SlotGroups) -> None:
        ranks = groups.rows[Kind.STEP_RANK]
        self._seen_ranks.update(np.unique(ranks["rank"]).tolist())
        self._scheduled = self._merge(self._scheduled, groups.rows[Kind.STEP_SCHEDULED])
        self._scheduled = self._scheduled[np.argsort(self._scheduled["step"], kind="stable")]
        self._outputs = self._merge(self._outputs, groups.rows[Kind.STEP_OUTPUT])
        self._ranks = self._merge(self._ranks, ranks)
        self._members = self._merge(self._members, groups.members)

    def take(self, now_ns: int, *, is_final: bool) -> ReadySteps:
        """Cut off the leading steps that are whole or need not be waited for any longer."""
        steps = self._scheduled["step"]
        output_row, has_output_row = _match(steps, self._outputs["step"])
        rank_row, has_rank_row = _match(steps, self._ranks["step"])
        output = _spread_outputs(len(steps), self._outputs[has_output_row], output_row[has_output_row])
        rank_count = np.bincount(rank_row[has_rank_row], minlength=len(steps))
        is_missing_ranks = rank_count < self._count_expected()
        count = self._count_ready(output, is_missing_ranks, now_ns, is_final=is_final)
        flags = np.where(output["output_ready_ns"] == UNKNOWN, OUTPUT_MISSING, 0).astype(np.uint8)
        flags |= np.where(is_missing_ranks, RANKS_MISSING, 0).astype(np.uint8)
        member_row, has_member_row = _match(steps, self._members["step"])
        own_ranks = has_rank_row & (rank_row < count)
        own_members = has_member_row & (member_row < count)
        ready = ReadySteps(
            scheduled=self._scheduled[:count],
            output=output[:count],
            ranks=self._ranks[own_ranks],
            rank_row=rank_row[own_ranks].astype(np.uint32),
            members=self._members[own_members],
            member_row=member_row[own_members].astype(np.uint32),
            flags=flags[:count],
        )
        self._release(ready, is_final=is_final)
        self._drop_ranks_without_step(now_ns)
        return ready

    def _count_expected(self) -> int:
        return len(self._seen_ranks) if self._expected is None else self._expected

    def _count_ready(self, output: Rows, is_missing_ranks: Bools, now_ns: int, *, is_final: bool) -> int:
        ready_ns = output["output_ready_ns"]
        has_output = ready_ns != UNKNOWN
        is_old = has_output & (ready_ns + np.uint64(self._grace_ns) <= np.uint64(now_ns))
        # Results come in step order: one that is missing while a later one is old was lost.
        is_overtaken = np.logical_or.accumulate(is_old[::-1])[::-1]
        may_be_first = self._expected is None and not self._seen_ranks
        is_whole = has_output & ~is_missing_ranks & (not may_be_first)
        is_done = is_whole | is_overtaken | is_final
        count = len(is_done) if is_done.all() else int(np.argmin(is_done))
        return min(count, self._fit(count))

    def _fit(self, count: int) -> int:
        rank_bytes = _RANK_BYTES * max(self._count_expected(), 1)
        members = self._scheduled["member_count"][:count].astype(np.int64)
        sizes = np.cumsum(_STEP_BYTES + rank_bytes + _MEMBER_BYTES * members)
        return max(1, int(np.searchsorted(sizes, _STEPS_BUDGET_BYTES)))

    def _release(self, ready: ReadySteps, *, is_final: bool) -> None:
        count = len(ready.scheduled)
        self._count("output_missing", int(np.sum(ready.flags & OUTPUT_MISSING > 0)))
        self._count("rank_missing", int(np.sum(ready.flags & RANKS_MISSING > 0)))
        if count:
            self._done_step = int(ready.scheduled["step"][-1])
        self._scheduled = self._scheduled[count:]
        done = np.iinfo(np.int64).max if is_final and not len(self._scheduled) else self._done_step
        # Parts of steps up to here that no step was there for.
        gone_outputs, gone_ranks = self._outputs["step"] <= done, self._ranks["step"] <= done
        known = ready.scheduled["step"]
        self._count("unmatched_output", int(np.sum(gone_outputs & ~np.isin(self._outputs["step"], known))))
        self._count("unmatched_rank", int(np.sum(gone_ranks & ~np.isin(self._ranks["step"], known))))
        self._outputs, self._ranks = self._outputs[~gone_outputs], self._ranks[~gone_ranks]
        self._members = self._members[self._members["step"] > done]

    def _drop_ranks_without_step(self, now_ns: int) -> None:
        if now_ns - self._looked_ns < _GRACES_WITHOUT_STEP * self._grace_ns:
            return
        is_alone = ~np.isin(self._ranks["step"], self._scheduled["step"])
        # By when they were seen, not by their own times: an exporter that starts late reads old records.
        is_gone = is_alone & (self._ranks["step"] <= self._looked_step)
        self._count("unmatched_rank", int(is_gone.sum()))
        self._looked_ns = now_ns
        self._looked_step = int(self._ranks["step"][is_alone].max(initial=0)) if is_alone.any() else -1
        self._ranks = self._ranks[~is_gone]

    def _merge(self, waiting: Rows, fresh: Rows) -> Rows:
        is_late = fresh["step"].astype(np.int64) <= self._done_step
        if is_late.any():
            self._count("late_part", int(is_late.sum()))
            fresh = fresh[~is_late]
        return np.concatenate([waiting, fresh]) if len(fresh) else waiting


def _match(steps: U64, wanted: U64) -> tuple[npt.NDArray[np.int64], Bools]:
    """Return each wanted step's row in the sorted `steps`, and whether it is there."""
    rows = np.searchsorted(steps, wanted)
    is_here = np.zeros(len(wanted), dtype=np.bool_)
    within = rows < len(steps)
    is_here[within] = steps[rows[within]] == wanted[within]
    return rows, is_here


def _spread_outputs(count: int, outputs: Rows, rows: npt.NDArray[np.int64]) -> Rows:
    spread = np.zeros(count, outputs.dtype)
    for name in ("output_ready_ns", "execute_ns", "sample_ns", "output_ns", "gap_ns"):
        spread[name] = UNKNOWN
    spread[rows] = outputs
    return spread
