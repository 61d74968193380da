# Tokens added up out of changes of membership: per step (to check the ledger against the scheduler's own
# totals) and per request (to stamp its totals when it ends). Whole chunks at a time; nothing per step.
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.members import JOINED, LANE_SHIFT, LEFT, RESET, RunningState
from otel_llmprism.model.steps import U16, U32, U64, MemberTable, RunningTable

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepSums:
    requests: I64
    prefill_tokens: I64
    decode_tokens: I64


@dataclass(frozen=True, slots=True)
class RequestSums:
    handle: U64
    steps: I64
    prefill_tokens: I64
    decode_tokens: I64


def sum_step_tokens(lane_of_step: U16, members: MemberTable, running: RunningTable) -> StepSums:
    """Add up each step's members; `running` is the set before the first step."""
    members = spell_out_resets(members, running)
    count = len(lane_of_step)
    requests, prefill, decode = (np.zeros(count, dtype=np.int64) for _ in range(3))
    lanes = members.slot >> LANE_SHIFT
    for lane in np.unique(lane_of_step):
        own = lanes == lane
        change, row = members.change[own], members.step_row[own]
        moves = np.bincount(row[change == JOINED], minlength=count)
        moves -= np.bincount(row[change == LEFT], minlength=count)
        active = int(np.sum(running.slot >> LANE_SHIFT == lane)) + np.cumsum(moves)
        is_here = lane_of_step == lane
        requests[is_here] = active[is_here]
        decode[is_here] = active[is_here]
    is_listed = (members.change <= JOINED) & (lanes == lane_of_step[members.step_row])
    row = members.step_row[is_listed]
    tokens, is_prefill = members.tokens[is_listed].astype(np.int64), members.is_prefill[is_listed] > 0
    np.subtract.at(requests, row[tokens == 0], 1)
    np.add.at(prefill, row[is_prefill], tokens[is_prefill])
    np.add.at(decode, row[~is_prefill], tokens[~is_prefill])
    np.subtract.at(decode, row, 1)  # the token that was predicted for them
    return StepSums(requests, prefill, decode)


def sum_request_tokens(lane_of_step: U16, members: MemberTable, running: RunningTable) -> RequestSums:
    """Add up each request's steps and tokens over these steps; every request seen has a row."""
    members = spell_out_resets(members, running)
    state = RunningState(running)
    state.apply(members)
    left_over = state.to_table()
    handles = np.unique(np.concatenate([members.handle, running.handle]))
    own = np.searchsorted(handles, members.handle)
    lanes = (members.slot >> LANE_SHIFT).astype(np.int64)
    # Steps of each lane before each row: a stay in the running set is a difference of two of them.
    lane_count = int(max(lanes.max(initial=0), (running.slot >> LANE_SHIFT).max(initial=0))) + 1
    before = np.zeros((lane_count, len(lane_of_step) + 1), dtype=np.int64)
    for lane in range(lane_count):
        np.cumsum(lane_of_step == lane, out=before[lane, 1:])
    predicted, steps, prefill, decode = (np.zeros(len(handles), dtype=np.int64) for _ in range(4))
    joined, left = members.change == JOINED, members.change == LEFT
    rows = members.step_row
    np.subtract.at(predicted, own[joined], before[lanes[joined], rows[joined]])
    np.add.at(predicted, own[left], before[lanes[left], rows[left]])
    ends = before[(left_over.slot >> LANE_SHIFT).astype(np.int64), -1]
    np.add.at(predicted, np.searchsorted(handles, left_over.handle), ends)
    is_listed = (members.change <= JOINED) & (lanes == lane_of_step[rows])
    listed, tokens = own[is_listed], members.tokens[is_listed].astype(np.int64)
    is_prefill = members.is_prefill[is_listed] > 0
    np.subtract.at(predicted, listed, 1)
    np.add.at(steps, listed[tokens > 0], 1)
    np.add.at(prefill, listed[is_prefill], tokens[is_prefill])
    np.add.at(decode, listed[~is_prefill], tokens[~is_prefill])
    return RequestSums(handles, steps + predicted, prefill, decode + predicted)


def list_steps_of(
    handle: int, lane_of_step: U16, members: MemberTable, running: RunningTable
) -> npt.NDArray[np.intp]:
    """Return the rows of the steps in which one request got tokens."""
    members = spell_out_resets(members, running)
    count = len(lane_of_step)
    got = np.zeros(count, dtype=np.bool_)
    stays = [(int(slot), 0) for slot in running.slot[running.handle == handle].tolist()]
    own = members.handle == handle
    for row, change, slot in zip(
        members.step_row[own].tolist(), members.change[own].tolist(), members.slot[own].tolist(), strict=True
    ):
        if change == JOINED:
            stays.append((slot, row))
        elif change == LEFT and stays:
            left_slot, since = stays.pop()
            got[since:row] |= lane_of_step[since:row] == left_slot >> int(LANE_SHIFT)
    for slot, since in stays:
        got[since:] |= lane_of_step[since:] == slot >> int(LANE_SHIFT)
    got[members.step_row[own & (members.change <= JOINED) & (members.tokens == 0)]] = False
    return np.flatnonzero(got)


def spell_out_resets(members: MemberTable, running: RunningTable) -> MemberTable:
    """Replace each RESET by those who leave with it; the same table where there is none."""
    resets = np.flatnonzero(members.change == RESET)
    if not len(resets):
        return members
    state = RunningState(running)
    parts, done = [], 0
    for reset in resets.tolist():
        state.apply(members, slice(done, reset))
        gone = state.to_table()
        parts += [cut_members(members, slice(done, reset)), _leave_all(gone, members.step_row[reset])]
        state = RunningState()
        done = reset + 1
    parts.append(cut_members(members, slice(done, None)))
    return MemberTable(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(MemberTable))
    )


def cut_members(members: MemberTable, rows: slice) -> MemberTable:
    return MemberTable(*(getattr(members, field.name)[rows] for field in fields(MemberTable)))


def _leave_all(gone: RunningTable, row: np.uint32) -> MemberTable:
    count = len(gone)
    nothing = np.zeros(count, dtype=np.uint8)
    rows: U32 = np.full(count, row, dtype=np.uint32)
    no_tokens = np.zeros(count, dtype=np.uint32)
    return MemberTable(rows, np.full(count, LEFT, np.uint8), nothing, gone.slot, no_tokens, gone.handle)
