# Ring slots of one engine's processes -> ledger tables, a chunk's worth at a time. Parts of a step join by
# step id, never by time; late, missing and unmatched parts are counted. Knows no clock: time comes in.
from dataclasses import astuple, dataclass

import numpy as np

from otel_llmprism.model.cycle import compute_cycles, compute_gaps, compute_training_cycles
from otel_llmprism.model.member_sums import sum_step_tokens
from otel_llmprism.model.members import JOINED, RunningState
from otel_llmprism.model.steps import (
    MEMBERS_COMPLETE,
    U8,
    U64,
    UNKNOWN,
    IdentityTable,
    LedgerTables,
    MemberTable,
    PauseTable,
    RankTable,
    RunningTable,
)
from otel_llmprism.native.ring_records import Kind, StepKind
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring_pending import PendingSteps, ReadySteps
from otel_llmprism.receivers.ring_requests import PendingRequests
from otel_llmprism.receivers.ring_slots import Rows, SlotSplitter
from otel_llmprism.receivers.ring_tables import (
    build_collectives,
    build_members,
    build_phases,
    build_ranks,
    build_steps,
)
from otel_llmprism.semconv.metric import LOST

_STAGE = "ring"
_MAX_KEPT_PAUSES = 64


@dataclass(frozen=True, slots=True)
class RingAssemblerConfig:
    expected_ranks: int | None = None  # None: as many as were seen
    grace_ns: int = 1_000_000_000  # how long after its result a step waits for parts still missing


class RingAssembler:
    """One per engine run; drains of all its rings go in through one thread."""

    def __init__(self, counters: Counters, config: RingAssemblerConfig | None = None) -> None:
        config = config or RingAssemblerConfig()
        self._counters = counters
        self._splitter = SlotSplitter()
        self._steps = PendingSteps(config.expected_ranks, config.grace_ns, self._count)
        self._requests = PendingRequests()
        self._running = RunningState()
        self._free_ns = 0
        self._rank_ends: dict[int, int] = {}
        self._next_step = 0
        self._pauses = self._requests.take().pauses  # those that steps still to come may have been in

    def consume(self, slots: bytes, source: int = 0) -> Rows:
        """Take what was drained from ring `source`; returns the HOOK_OFF rows, which are no ledger's."""
        groups = self._splitter.split(slots, source)
        self._count("unknown_record", groups.unknown_count)
        self._count("malformed_record", groups.malformed_count)
        self._steps.add(groups)
        self._requests.add(groups)
        return groups.rows[Kind.HOOK_OFF]

    def take(self, now_ns: int, *, is_final: bool = False) -> LedgerTables | None:
        """Return the next complete steps and what happened to requests, at most a chunk's worth.

        None when there is nothing. `is_final`: nothing more will come, give what is there.
        """
        ready = self._steps.take(now_ns, is_final=is_final)
        requests = self._requests.take()
        if not len(ready.scheduled) and not requests.row_count:
            return None
        running = self._running.to_table()
        members = build_members(ready)
        self._pauses = self._keep_pauses(requests.pauses)
        collectives = build_collectives(ready)
        ranks, identities = build_ranks(ready, collectives)
        cycle, gap = self._measure_times(ready, members, ranks, identities, self._pauses)
        flags = self._check_members(ready, members, running) | ready.flags
        self._running.apply(members)
        if len(ready.scheduled):
            self._count_missing(ready.scheduled["step"])
        return LedgerTables(
            steps=build_steps(ready, cycle, gap, flags),
            identities=identities,
            ranks=ranks,
            members=members,
            running=running,
            arrivals=requests.arrivals,
            events=requests.events,
            ends=requests.ends,
            text=requests.text,
            pauses=requests.pauses,
            collectives=collectives,
            phases=build_phases(ready),
        )

    def _measure_times(
        self,
        ready: ReadySteps,
        members: MemberTable,
        ranks: RankTable,
        identities: IdentityTable,
        pauses: PauseTable,
    ) -> tuple[U64, U64]:
        scheduled, output = ready.scheduled, ready.output
        start, output_ready = scheduled["schedule_start_ns"], output["output_ready_ns"]
        cycle, free = compute_cycles(start, output_ready, self._free_ns)
        is_training = scheduled["kind"] == StepKind.TRAIN
        if is_training.any():
            place = identities.rank[ranks.identity_row]
            by_rank = compute_training_cycles(ranks, len(scheduled), place, self._rank_ends, pauses)
            cycle = np.where(is_training, by_rank, cycle)
        gap = compute_gaps(start, free, self._find_runnable(ready, members), pauses)
        known = output_ready[output_ready != UNKNOWN]
        self._free_ns = max(self._free_ns, int(known.max(initial=0)))
        return cycle, np.where(output["gap_ns"] == UNKNOWN, gap, output["gap_ns"])

    def _keep_pauses(self, fresh: PauseTable) -> PauseTable:
        """Return those that no step is past yet: a pause may be taken before the step that it was in."""
        oldest = min((self._free_ns, *self._rank_ends.values()))
        kept = self._pauses.end_ns > oldest
        old = (column[kept][-_MAX_KEPT_PAUSES:] for column in astuple(self._pauses))
        return PauseTable(*map(np.concatenate, zip(old, astuple(fresh), strict=True)))

    def _find_runnable(self, ready: ReadySteps, members: MemberTable) -> U64:
        """Return since when each step's work could run: 0 if some of it ran in the step before."""
        count = len(ready.scheduled)
        joined = members.change == JOINED
        joined_count = np.bincount(members.step_row[joined], minlength=count)
        earliest = np.full(count, UNKNOWN, dtype=np.uint64)
        queued = self._requests.find_arrivals(members.handle[joined])
        np.minimum.at(earliest, members.step_row[joined], queued)
        is_all_new = (joined_count >= ready.scheduled["requests"]) & (earliest != UNKNOWN)
        return np.where(is_all_new, earliest, np.uint64(0))

    def _check_members(self, ready: ReadySteps, members: MemberTable, running: RunningTable) -> U8:
        scheduled = ready.scheduled
        sums = sum_step_tokens(scheduled["lane"], members, running)
        is_right = (
            (sums.requests == scheduled["requests"])
            & (sums.prefill_tokens == scheduled["prefill_tokens"])
            & (sums.decode_tokens == scheduled["decode_tokens"])
        )
        self._count("members_mismatch", int(np.sum(~is_right)))
        return np.where(is_right, MEMBERS_COMPLETE, 0).astype(np.uint8)

    def _count_missing(self, steps: U64) -> None:
        last = int(steps[-1])
        self._count("step_missing", max(0, last + 1 - self._next_step - len(steps)))
        self._next_step = last + 1

    def _count(self, cause: str, amount: int) -> None:
        if amount:
            self._counters.add(LOST, amount, stage=_STAGE, cause=cause)
