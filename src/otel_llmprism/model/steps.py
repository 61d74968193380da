# The ledger as columns: steps, their ranks, who was in them, and the requests' lives. Times are
# CLOCK_MONOTONIC of the writing node; an Anchor ties them to real time. UNKNOWN marks what was not measured.
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.clocks import Anchor as Anchor  # noqa: PLC0414  a ledger is read with its anchor

UNKNOWN = np.uint64((1 << 64) - 1)

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

# StepTable.flags
MEMBERS_COMPLETE = 1  # the changes of membership add up to the step's requests and tokens
OUTPUT_MISSING = 2
RANKS_MISSING = 4  # fewer ranks told of this step than of the engine's steps before


@dataclass(frozen=True, slots=True)
class Table:
    """Equally long columns, one dataclass field each."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))


@dataclass(frozen=True, slots=True)
class StepTable(Table):
    step: U64
    schedule_start_ns: U64
    schedule_end_ns: U64
    output_ready_ns: U64
    cycle_ns: U64
    execute_ns: U64
    sample_ns: U64
    output_ns: U64
    gap_ns: U64
    kept_probability: F64
    kv_tokens: U64
    requests: U32
    prefill_tokens: U32
    decode_tokens: U32
    waiting: U32
    running: U32
    preemptions: U32
    kv_usage: F32
    kind: U8
    kept: U8
    graph_mode: U8
    mode: U8
    lane: U16
    flags: U8


@dataclass(frozen=True, slots=True)
class IdentityTable(Table):
    """Each rank's place, told once a chunk; RankTable.identity_row points here."""

    rank: U32
    tp: U32
    pp: U32
    dp: U32
    cp: U32
    ep: U32


@dataclass(frozen=True, slots=True)
class RankTable(Table):
    step_row: U32
    identity_row: U32
    start_ns: U64
    end_ns: U64
    device_ns: U64
    wait_ns: U64


@dataclass(frozen=True, slots=True)
class CollectiveTable(Table):
    """Each rank's part in the collectives of a sampled step; rank after rank, in order.

    The host's times are UNKNOWN where a device does the work: there `device_ns` is what is known, or nothing.
    `group` is one number for all members of a process group; with `seq`, the group's collectives in the step
    counted from 0, it joins the parts of one collective.
    """

    step_row: U32
    rank: U32
    group: U64
    seq: U32
    op: U8
    bytes: U64
    start_ns: U64
    end_ns: U64
    device_ns: U64


@dataclass(frozen=True, slots=True)
class PhaseTable(Table):
    """Where each rank's time of a training step went; `iteration` is the framework's own number."""

    step_row: U32
    rank: U32
    iteration: U64
    forward_ns: U64
    backward_ns: U64
    optimizer_ns: U64
    data_ns: U64
    micro_batches: U32


@dataclass(frozen=True, slots=True)
class MemberTable(Table):
    """Changes of the running set, in order: what RunningSet.diff told."""

    step_row: U32
    change: U8
    is_prefill: U8
    slot: U32
    tokens: U32
    handle: U64


@dataclass(frozen=True, slots=True)
class RunningTable(Table):
    """The running set before a chunk's first step, so that a chunk needs no other."""

    slot: U32
    handle: U64


@dataclass(frozen=True, slots=True)
class ArrivalTable(Table):
    """Ids are their bytes read as little-endian numbers; texts lie in LedgerTables.text.

    There, row after row: the request id, then the external id without its first `external_shared_bytes`,
    which are the request id's.
    """

    handle: U64
    arrival_ns: U64
    trace_id_high: U64
    trace_id_low: U64
    span_id: U64
    parent_span_id: U64
    flags: U8
    request_id_bytes: U16
    external_shared_bytes: U16
    external_rest_bytes: U16


@dataclass(frozen=True, slots=True)
class EventTable(Table):
    handle: U64
    time_ns: U64
    step: U64
    tokens: U32
    event: U8


@dataclass(frozen=True, slots=True)
class EndTable(Table):
    handle: U64
    time_ns: U64
    prompt_tokens: U32
    output_tokens: U32
    cached_tokens: U32
    steps: U32
    preemptions: U32
    finish: U8
    error: U8


@dataclass(frozen=True, slots=True)
class PauseTable(Table):
    start_ns: U64
    end_ns: U64
    reason: U8


@dataclass(frozen=True, slots=True)
class ChunkTable(Table):
    """Where each of several chunks begins in the tables; a row each, in the order of the tables."""

    seq: U64
    anchor_monotonic_ns: U64
    anchor_realtime_ns: U64
    first_step_row: U32
    first_member_row: U32
    first_running_row: U32
    first_arrival_row: U32
    first_text_row: U32


@dataclass(frozen=True, slots=True)
class LedgerTables:
    """What one chunk, or several of one engine, run and node in order, say."""

    steps: StepTable
    identities: IdentityTable
    ranks: RankTable
    members: MemberTable
    running: RunningTable
    arrivals: ArrivalTable
    events: EventTable
    ends: EndTable
    text: U8
    pauses: PauseTable
    collectives: CollectiveTable
    phases: PhaseTable
