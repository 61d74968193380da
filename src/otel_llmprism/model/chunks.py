# One chunk's own part of tables that several chunks share: each begins with its own running set, so that
# what is computed chunk by chunk stays right when chunks between them were lost.
from typing import NamedTuple

from otel_llmprism.model.member_sums import cut_members
from otel_llmprism.model.steps import U16, ChunkTable, LedgerTables, MemberTable, RunningTable


class ChunkMembers(NamedTuple):
    first_step_row: int
    lane_of_step: U16
    members: MemberTable  # step_row counts within the chunk
    running: RunningTable


def cut_chunk_members(tables: LedgerTables, chunks: ChunkTable, chunk: int) -> ChunkMembers:
    """Return the steps' lanes, the changes and the running set of one chunk."""
    steps = _rows_of(chunks.first_step_row.tolist(), chunk, len(tables.steps))
    changes = _rows_of(chunks.first_member_row.tolist(), chunk, len(tables.members))
    running = _rows_of(chunks.first_running_row.tolist(), chunk, len(tables.running))
    shared = cut_members(tables.members, changes)
    own = (shared.change, shared.is_prefill, shared.slot, shared.tokens, shared.handle)
    return ChunkMembers(
        steps.start,
        tables.steps.lane[steps],
        MemberTable(shared.step_row - chunks.first_step_row[chunk], *own),
        RunningTable(tables.running.slot[running], tables.running.handle[running]),
    )


def _rows_of(firsts: list[int], chunk: int, count: int) -> slice:
    return slice(firsts[chunk], firsts[chunk + 1] if chunk + 1 < len(firsts) else count)
