# Who was in which steps, added up: per request the cycles, gaps and flagged steps of the steps it was in.
# Whole chunks at a time, nothing per step. Pure.
import numpy as np
import numpy.typing as npt

from otel_llmprism.model.chunks import ChunkMembers
from otel_llmprism.model.member_sums import spell_out_resets
from otel_llmprism.model.members import JOINED, LANE_SHIFT, LEFT
from otel_llmprism.model.steps import U64

I64 = npt.NDArray[np.int64]
MAX_LANES = 64  # batches that alternate; a ledger that claims more is not believed


def sum_request_amounts(own: ChunkMembers, amounts: I64) -> tuple[U64, I64]:
    """Return the requests of a chunk and, for each, the sums of `amounts` over its steps.

    `amounts` has a row a step and a column for each thing that is added up.
    """
    members = spell_out_resets(own.members, own.running)
    handles = np.unique(np.concatenate([members.handle, own.running.handle]))
    sums = np.zeros((len(handles), amounts.shape[1]), dtype=np.int64)
    if not len(handles) or not len(amounts):
        return handles, sums
    before = _sum_before(own, amounts)
    lanes = (members.slot >> LANE_SHIFT).astype(np.int64)
    at = np.searchsorted(handles, members.handle)
    is_known = lanes < len(before)
    joined, left = (members.change == JOINED) & is_known, (members.change == LEFT) & is_known
    rows = members.step_row
    np.subtract.at(sums, at[joined], before[lanes[joined], rows[joined]])
    np.add.at(sums, at[left], before[lanes[left], rows[left]])
    # Whoever did not leave was there until the end; whoever did not join, from the beginning.
    open_count = np.zeros((len(handles), len(before)), dtype=np.int64)
    running_lanes = (own.running.slot >> LANE_SHIFT).astype(np.int64)
    is_near = running_lanes < len(before)
    running_at = np.searchsorted(handles, own.running.handle[is_near])
    np.add.at(open_count, (running_at, running_lanes[is_near]), 1)
    np.add.at(open_count, (at[joined], lanes[joined]), 1)
    np.subtract.at(open_count, (at[left], lanes[left]), 1)
    sums += open_count @ before[:, -1]
    # In the running set, but without a token in the step: it did not wait for this one.
    idle = (members.change <= JOINED) & (members.tokens == 0) & is_known
    idle &= lanes == own.lane_of_step[rows]
    np.subtract.at(sums, at[idle], amounts[rows[idle]])
    return handles, sums


def _sum_before(own: ChunkMembers, amounts: I64) -> I64:
    """Return, by lane and step, the sums over the lane's steps before it."""
    slots = (own.members.slot, own.running.slot)
    top = max([int((slot >> LANE_SHIFT).max(initial=0)) for slot in slots])
    lane_count = min(max(top, int(own.lane_of_step.max(initial=0))) + 1, MAX_LANES)
    before = np.zeros((lane_count, len(own.lane_of_step) + 1, amounts.shape[1]), dtype=np.int64)
    for lane in range(lane_count):
        is_own = (own.lane_of_step == lane)[:, None]
        np.cumsum(np.where(is_own, amounts, 0), axis=0, out=before[lane, 1:])
    return before
