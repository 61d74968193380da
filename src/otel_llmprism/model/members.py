# The running set, followed through the changes that the ledger tells. Both sides predict one decode token
# for each running request of a step's lane; so every request's tokens add up exactly.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.steps import U8, U32, U64, MemberTable, RunningTable

LANE_SHIFT = np.uint32(16)
TOKENS, JOINED, LEFT, RESET = range(4)


@dataclass(frozen=True, slots=True)
class StepMembers:
    """Who was in one step and what each got there; those without tokens are left out."""

    handle: U64
    tokens: U32
    is_prefill: U8


class RunningState:
    """Which request holds which slot. Rows of changes go in, in step order."""

    def __init__(self, running: RunningTable | None = None) -> None:
        self._slots: dict[int, int] = {}
        if running is not None:
            self._slots = dict(zip(running.slot.tolist(), running.handle.tolist(), strict=True))

    def apply(self, members: MemberTable, rows: slice = slice(None)) -> None:
        """Take in the changes of `rows`."""
        changes, slots = members.change[rows], members.slot[rows]
        is_change = changes != TOKENS
        for change, slot, handle in zip(
            changes[is_change].tolist(),
            slots[is_change].tolist(),
            members.handle[rows][is_change].tolist(),
            strict=True,
        ):
            if change == JOINED:
                self._slots[slot] = handle
            elif change == LEFT:
                self._slots.pop(slot, None)
            else:
                self._slots.clear()

    def list_members(self, lane: int, members: MemberTable, rows: slice) -> StepMembers:
        """Return who was in a step of `lane` whose changes, `rows`, were applied last."""
        running = self.to_table()
        in_lane = running.slot >> LANE_SHIFT == lane
        order = np.argsort(running.slot[in_lane])
        slots, handles = running.slot[in_lane][order], running.handle[in_lane][order]
        tokens = np.ones(len(slots), dtype=np.uint32)
        is_prefill = np.zeros(len(slots), dtype=np.uint8)
        listed = members.slot[rows]
        # Changes of other lanes give nothing in this one.
        own = np.isin(listed, slots) & (members.change[rows] <= JOINED)
        at = np.searchsorted(slots, listed[own])
        tokens[at] = members.tokens[rows][own]
        is_prefill[at] = members.is_prefill[rows][own]
        has_tokens = tokens > 0
        return StepMembers(handles[has_tokens], tokens[has_tokens], is_prefill[has_tokens])

    def to_table(self) -> RunningTable:
        return RunningTable(
            np.fromiter(self._slots.keys(), np.uint32, len(self._slots)),
            np.fromiter(self._slots.values(), np.uint64, len(self._slots)),
        )
