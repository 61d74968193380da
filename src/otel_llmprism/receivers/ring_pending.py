# Parts of steps that wait between a drain and a chunk until their step is whole or its time is up.
# Bounded by the grace for missing parts; what ring_parts.py holds goes with its step.
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.steps import OUTPUT_MISSING, RANKS_MISSING, U8, U32, UNKNOWN
from otel_llmprism.native.ring_records import Kind
from otel_llmprism.receivers.ring_parts import Bools, PendingParts, match_steps
from otel_llmprism.receivers.ring_slots import DTYPES, Rows, SlotGroups

# Worst bytes of a row on the wire; what a chunk takes stays well below its 1 MiB.
_STEP_BYTES, _RANK_BYTES, _MEMBER_BYTES, _COLLECTIVE_BYTES, _PHASE_BYTES = 140, 40, 28, 50, 52
_STEPS_BUDGET_BYTES = 400_000
MAX_COLLECTIVES = 8000  # of one step, all ranks together: what fits one chunk
_GRACES_WITHOUT_STEP = 10  # a step may be told of well after its fastest ranks

_MEMBER_DTYPE = np.dtype([("step", "<u8"), ("handle", "<u8"), ("slot", "<u4"), ("word", "<u4")])


@dataclass(frozen=True, slots=True)
class ReadySteps:
    """Whole steps in order, and their parts with the row of the step they belong to."""

    scheduled: Rows
    output: Rows  # one row a step; UNKNOWN throughout where it is missing
    ranks: Rows
    rank_row: U32
    members: Rows
    member_row: U32
    collectives: Rows
    collective_row: U32
    phases: Rows
    phase_row: U32
    flags: U8


class PendingSteps:
    def __init__(self, expected_ranks: int | None, grace_ns: int, count: Callable[[str, int], None]) -> None:
        self._expected = expected_ranks
        self._grace_ns = grace_ns
        self._count = count
        self._seen_ranks: set[int] = set()
        self._done_step = -1
        self._scheduled: Rows = np.zeros(0, DTYPES[Kind.STEP_SCHEDULED])
        self._members: Rows = np.zeros(0, _MEMBER_DTYPE)
        self._outputs = PendingParts(Kind.STEP_OUTPUT, "output", count)
        self._ranks = PendingParts(Kind.STEP_RANK, "rank", count)
        self._collectives = PendingParts(Kind.COLLECTIVE, "collective", count)
        self._phases = PendingParts(Kind.STEP_PHASES, "phases", count)
        self._of_ranks = (self._ranks, self._collectives, self._phases)
        self._looked_ns = 0  # when parts without a step were looked at last

    def add(self, groups: SlotGroups) -> None:
        ranks = groups.rows[Kind.STEP_RANK]
        self._seen_ranks.update(np.unique(ranks["rank"]).tolist())
        self._scheduled = self._merge(self._scheduled, groups.rows[Kind.STEP_SCHEDULED])
        self._scheduled = self._scheduled[np.argsort(self._scheduled["step"], kind="stable")]
        self._members = self._merge(self._members, groups.members)
        self._outputs.add(groups.rows[Kind.STEP_OUTPUT], self._done_step)
        self._ranks.add(ranks, self._done_step)
        self._collectives.add(groups.rows[Kind.COLLECTIVE], self._done_step)
        self._phases.add(groups.rows[Kind.STEP_PHASES], self._done_step)

    def take(self, now_ns: int, *, is_final: bool) -> ReadySteps:
        """Cut off the leading steps that are whole or need not be waited for any longer."""
        steps = self._scheduled["step"]
        output = _spread_outputs(len(steps), *self._outputs.select(steps))
        rank_count = np.bincount(self._ranks.select(steps)[1], minlength=len(steps))
        is_missing_ranks = rank_count < self._count_expected()
        count = self._count_ready(output, is_missing_ranks, now_ns, is_final=is_final)
        flags = np.where(output["output_ready_ns"] == UNKNOWN, OUTPUT_MISSING, 0).astype(np.uint8)
        flags |= np.where(is_missing_ranks, RANKS_MISSING, 0).astype(np.uint8)
        own = steps[:count]
        member_row, is_member = match_steps(own, self._members["step"])
        ready = ReadySteps(
            self._scheduled[:count],
            output[:count],
            *self._ranks.select(own),
            self._members[is_member],
            member_row[is_member].astype(np.uint32),
            *self._limit(*self._collectives.select(own)),
            *self._phases.select(own),
            flags[:count],
        )
        self._release(ready, is_final=is_final)
        self._drop_parts_without_step(now_ns)
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
        sizes = _STEP_BYTES + rank_bytes + _MEMBER_BYTES * self._scheduled["member_count"][:count].astype(int)
        for parts, row_bytes in ((self._collectives, _COLLECTIVE_BYTES), (self._phases, _PHASE_BYTES)):
            if len(parts.rows):
                sizes += row_bytes * np.bincount(
                    parts.select(self._scheduled["step"][:count])[1], minlength=count
                )
        return max(1, int(np.searchsorted(np.cumsum(sizes), _STEPS_BUDGET_BYTES)))

    def _limit(self, rows: Rows, step_row: U32) -> tuple[Rows, U32]:
        """Leave out what no chunk could take of a step's collectives: the last of every rank."""
        if len(rows) <= MAX_COLLECTIVES:
            return rows, step_row
        order = np.lexsort((rows["seq"], step_row))
        first = np.searchsorted(step_row[order], step_row[order])
        kept = order[np.arange(len(rows)) - first < MAX_COLLECTIVES]
        self._count("collectives_beyond_limit", len(rows) - len(kept))
        return rows[kept], step_row[kept]

    def _release(self, ready: ReadySteps, *, is_final: bool) -> None:
        count = len(ready.scheduled)
        self._count("output_missing", int(np.sum(ready.flags & OUTPUT_MISSING > 0)))
        self._count("rank_missing", int(np.sum(ready.flags & RANKS_MISSING > 0)))
        if count:
            self._done_step = int(ready.scheduled["step"][-1])
        self._scheduled = self._scheduled[count:]
        done = np.iinfo(np.int64).max if is_final and not len(self._scheduled) else self._done_step
        for parts in (self._outputs, *self._of_ranks):
            parts.release(done, ready.scheduled["step"])
        self._members = self._members[self._members["step"] > done]

    def _drop_parts_without_step(self, now_ns: int) -> None:
        if now_ns - self._looked_ns < _GRACES_WITHOUT_STEP * self._grace_ns:
            return
        self._looked_ns = now_ns
        for parts in self._of_ranks:
            parts.drop_alone(self._scheduled["step"])

    def _merge(self, waiting: Rows, fresh: Rows) -> Rows:
        is_late = fresh["step"].astype(np.int64) <= self._done_step
        if is_late.any():
            self._count("late_part", int(is_late.sum()))
            fresh = fresh[~is_late]
        return np.concatenate([waiting, fresh]) if len(fresh) else waiting


def _spread_outputs(count: int, outputs: Rows, rows: U32) -> Rows:
    spread = np.zeros(count, outputs.dtype)
    for name in ("output_ready_ns", "execute_ns", "sample_ns", "output_ns", "gap_ns"):
        spread[name] = UNKNOWN
    spread[rows] = outputs
    return spread
