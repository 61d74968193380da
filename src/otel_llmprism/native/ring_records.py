# The records that travel through a ring: their kinds, codes and packers. Every record is whole slots.
# No field here can hold a prompt, a completion, a token id or an exception's message.
# Packers raise struct.error for a value out of range; hooks are guarded and count that.
# ruff: noqa: PLR0917 - the packers run in the user's step loop, where keywords would double their cost
import functools
import hashlib
import struct
from collections.abc import Sequence
from itertools import chain

from otel_llmprism.native.ring_codes import *  # noqa: F403 - codes and packers are one vocabulary
from otel_llmprism.native.ring_codes import Text
from otel_llmprism.native.ring_layout import SLOT_BYTES

UNKNOWN_NS = (1 << 64) - 1  # also: unknown step
MEMBERS_PER_SLOT = 7
INLINE_ID_BYTES = 64  # of a request id, in its REQUEST_ARRIVED
TEXT_BYTES = 96  # of a longer id, in its REQUEST_TEXT
MAX_ID_BYTES = INLINE_ID_BYTES + TEXT_BYTES
MAX_TOKENS = (1 << 28) - 1

# Every slot: kind u16, entries u16, reserved u32, then the payload; zero bytes fill it up.
_SCHEDULED = struct.Struct("<HHIQQQdQIIIIIIfBBBBHH44x")
# By the number of entries: one call packs a slot.
_MEMBER_SLOTS = [
    struct.Struct(f"<HHIQ{'QII' * count}{SLOT_BYTES - 16 - 16 * count}x")
    for count in range(MEMBERS_PER_SLOT + 1)
]
_OUTPUT = struct.Struct("<HHIQQQQQQ72x")
_RANK = struct.Struct("<HHIQQQQQIIIIII56x")
_ARRIVED = struct.Struct(f"<HHIQQ16s8s8sBxHHH{INLINE_ID_BYTES}s")
_TEXT = struct.Struct(f"<HHIQBxH12x{TEXT_BYTES}s")
_EVENT = struct.Struct("<HHIQQQIB91x")
_ENDED = struct.Struct("<HHIQQIIIIIBB82x")
_PAUSE = struct.Struct("<HHIQQB103x")
_HOOK_OFF = struct.Struct("<HHIQQQB7x32s56x")
_COLLECTIVE = struct.Struct("<HHIQQQQQQIIB63x")
_PHASES = struct.Struct("<HHIQQQQQQII64x")


def pack_step_scheduled(
    step: int,
    schedule_start_ns: int,
    schedule_end_ns: int,
    kind: int,
    kept: int,
    kept_probability: float,
    requests: int,
    prefill_tokens: int,
    decode_tokens: int,
    kv_tokens: int,
    waiting: int,
    running: int,
    preemptions: int,
    kv_usage: float,
    graph_mode: int,
    mode: int,
    members: Sequence[tuple[int, int, int]] = (),
    lane: int = 0,
) -> bytes:
    """Pack a scheduled step and, in the same record, its changes of membership (RunningSet.diff).

    `lane` tells batches apart that alternate under pipeline parallelism; 0 where there is one.
    """
    scheduled = _SCHEDULED.pack(
        1, 0, 0, step, schedule_start_ns, schedule_end_ns, kept_probability, kv_tokens, requests,
        prefill_tokens, decode_tokens, waiting, running, preemptions, kv_usage, kind, kept, graph_mode,
        mode, lane, len(members),
    )  # fmt: skip
    return scheduled + _pack_members(step, members) if members else scheduled


def pack_member(change: int, slot: int, handle: int, tokens: int, *, prefill: bool) -> tuple[int, int, int]:
    """Make one entry for `members`; tokens beyond MAX_TOKENS are no real batch."""
    return handle, slot, change << 29 | prefill << 28 | tokens


def _pack_members(step: int, members: Sequence[tuple[int, int, int]]) -> bytes:
    slots = []
    for first in range(0, len(members), MEMBERS_PER_SLOT):
        part = members[first : first + MEMBERS_PER_SLOT]
        count = len(part)
        slots.append(_MEMBER_SLOTS[count].pack(2, count, 0, step, *chain.from_iterable(part)))
    return b"".join(slots)


def pack_step_output(
    step: int, output_ready_ns: int, execute_ns: int, sample_ns: int, output_ns: int, gap_ns: int = UNKNOWN_NS
) -> bytes:
    """Pack a step's result; an unknown duration is UNKNOWN_NS, an unknown gap is computed later."""
    return _OUTPUT.pack(3, 0, 0, step, output_ready_ns, execute_ns, sample_ns, output_ns, gap_ns)


def pack_step_rank(
    step: int,
    rank: int,
    start_ns: int,
    end_ns: int,
    device_ns: int = UNKNOWN_NS,
    wait_ns: int = UNKNOWN_NS,
    tp: int = 0,
    pp: int = 0,
    dp: int = 0,
    cp: int = 0,
    ep: int = 0,
) -> bytes:
    """Pack one rank's part of a step; `rank` is the global one."""
    return _RANK.pack(4, 0, 0, step, start_ns, end_ns, device_ns, wait_ns, rank, tp, pp, dp, cp, ep)


def pack_request_arrived(
    handle: int,
    arrival_ns: int,
    trace_id: bytes,
    span_id: bytes,
    parent_span_id: bytes,
    request_id: str,
    external_id: str = "",
    *,
    sampled: bool,
    has_remote_parent: bool = False,
) -> bytes:
    """Pack an arrival; ids beyond MAX_ID_BYTES are cut and end in a hash of the whole."""
    own, external = bound_id(request_id), bound_id(external_id) if external_id != request_id else b""
    flags = sampled | has_remote_parent << 1 | (bool(external_id) and not external) << 2
    record = _ARRIVED.pack(
        5, 0, 0, handle, arrival_ns, trace_id, span_id, parent_span_id, flags, len(own), len(external), 0,
        own[:INLINE_ID_BYTES],
    )  # fmt: skip
    if len(own) > INLINE_ID_BYTES:
        record += _pack_text(handle, Text.REQUEST_ID, own[INLINE_ID_BYTES:])
    if external:
        record += _pack_text(handle, Text.EXTERNAL_ID, external[:TEXT_BYTES])
    if len(external) > TEXT_BYTES:
        record += _pack_text(handle, Text.EXTERNAL_ID_REST, external[TEXT_BYTES:])
    return record


def _pack_text(handle: int, which: int, text: bytes) -> bytes:
    return _TEXT.pack(6, 0, 0, handle, which, len(text), text)


def pack_request_event(
    handle: int, time_ns: int, event: int, step: int = UNKNOWN_NS, tokens: int = 0
) -> bytes:
    """Pack one event in a request's life."""
    return _EVENT.pack(7, 0, 0, handle, time_ns, step, tokens, event)


def pack_request_ended(
    handle: int,
    time_ns: int,
    prompt_tokens: int,
    output_tokens: int,
    cached_tokens: int,
    steps: int,
    preemptions: int,
    finish: int,
    *,
    error: bool = False,
) -> bytes:
    """Pack a request's end and its totals."""
    return _ENDED.pack(
        8, 0, 0, handle, time_ns, prompt_tokens, output_tokens, cached_tokens, steps, preemptions, finish,
        error,
    )  # fmt: skip


def pack_pause(start_ns: int, end_ns: int, reason: int) -> bytes:
    """Pack a pause that no step's cycle may include."""
    return _PAUSE.pack(9, 0, 0, start_ns, end_ns, reason)


def pack_hook_off(hook: str, time_ns: int, p99_ns: int, budget_ns: int, reason: int) -> bytes:
    """Pack that a hook switched itself off; `hook` is one of our own names."""
    return _HOOK_OFF.pack(10, 0, 0, time_ns, p99_ns, budget_ns, reason, hook.encode()[:32])


def pack_collective(
    step: int,
    rank: int,
    group: int,
    seq: int,
    op: int,
    bytes_: int,
    start_ns: int,
    end_ns: int,
    device_ns: int = UNKNOWN_NS,
) -> bytes:
    """Pack one rank's part in one collective of a sampled step.

    `group` is one number for all its members (derive_group_hash), `seq` counts the group's collectives
    in the step from 0; `device_ns` is the time between its device events, where there is a device.
    """
    return _COLLECTIVE.pack(11, 0, 0, step, group, bytes_, start_ns, end_ns, device_ns, rank, seq, op)


def pack_step_phases(
    step: int,
    rank: int,
    iteration: int,
    forward_ns: int = UNKNOWN_NS,
    backward_ns: int = UNKNOWN_NS,
    optimizer_ns: int = UNKNOWN_NS,
    data_ns: int = UNKNOWN_NS,
    micro_batches: int = 0,
) -> bytes:
    """Pack where one rank's time of a training step went; `iteration` is the framework's own number."""
    return _PHASES.pack(
        12, 0, 0, step, iteration, forward_ns, backward_ns, optimizer_ns, data_ns, rank, micro_batches
    )


def derive_group_hash(name: str, ranks: Sequence[int]) -> int:
    """Return the number by which all members of a process group know it; never 0."""
    text = f"{name}\0{','.join(map(str, ranks))}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1


# A request's id is told of six times in its life, and hashing it costs more than packing a record.
@functools.lru_cache(maxsize=4096)
def derive_request_handle(request_id: str) -> int:
    """Return the handle by which every process of an engine knows a request; never 0."""
    digest = hashlib.blake2b(request_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def bound_id(text: str) -> bytes:
    """Return an id's bytes, cut to MAX_ID_BYTES with `~` and 16 hex digits of a hash of the whole."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= MAX_ID_BYTES:
        return raw
    kept = raw[: MAX_ID_BYTES - 17].decode("utf-8", "ignore").encode()
    return kept + b"~" + hashlib.sha256(raw).hexdigest()[:16].encode()
