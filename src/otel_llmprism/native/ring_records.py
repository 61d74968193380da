# The records that travel through a ring: their kinds, codes and packers. Every record is whole slots.
# No field here can hold a prompt, a completion, a token id or an exception's message.
# Packers raise struct.error for a value out of range; hooks are guarded and count that.
# ruff: noqa: PLR0917 - the packers run in the user's step loop, where keywords would double their cost
import hashlib
import struct
from collections.abc import Sequence
from enum import IntEnum

from otel_llmprism.native.ring_layout import SLOT_BYTES

UNKNOWN_NS = (1 << 64) - 1  # also: unknown step
MEMBERS_PER_SLOT = 7
INLINE_ID_BYTES = 64  # of a request id, in its REQUEST_ARRIVED
TEXT_BYTES = 96  # of a longer id, in its REQUEST_TEXT
MAX_ID_BYTES = INLINE_ID_BYTES + TEXT_BYTES
MAX_TOKENS = (1 << 28) - 1


class Kind(IntEnum):
    STEP_SCHEDULED = 1
    STEP_MEMBERS = 2
    STEP_OUTPUT = 3
    STEP_RANK = 4
    REQUEST_ARRIVED = 5
    REQUEST_TEXT = 6
    REQUEST_EVENT = 7
    REQUEST_ENDED = 8
    PAUSE = 9
    HOOK_OFF = 10


class StepKind(IntEnum):  # position in semconv.step.KINDS, plus one
    UNKNOWN = 0
    PREFILL = 1
    DECODE = 2
    MIXED = 3
    TRAIN = 4
    IDLE = 5
    DUMMY = 6


class Kept(IntEnum):  # position in semconv.step.KEPT, plus one
    NO = 0
    RANDOM = 1
    ANOMALOUS = 2
    FINDING = 3
    DEEP = 4
    ALL = 5


class GraphMode(IntEnum):
    UNKNOWN = 0
    NONE = 1
    PIECEWISE = 2
    FULL = 3


class Mode(IntEnum):
    OFF = 0
    SENTINEL = 1
    DEEP = 2


class Member(IntEnum):
    """What one entry of STEP_MEMBERS says about a slot of the running set."""

    TOKENS = 0  # this step it gets `tokens`, not the one token that is predicted
    JOINED = 1  # it is in the running set from this step on and gets `tokens`
    LEFT = 2  # it is out of the running set from this step on
    RESET = 3  # the running set is empty; those that are in it follow as JOINED


class RequestEvent(IntEnum):
    QUEUED = 1
    SCHEDULED = 2  # for the first time
    FIRST_TOKEN = 3
    PREEMPTED = 4


class Finish(IntEnum):
    UNKNOWN = 0
    STOP = 1
    LENGTH = 2
    ABORT = 3
    ERROR = 4
    TOOL_CALLS = 5
    CONTENT_FILTER = 6


class Pause(IntEnum):
    UNKNOWN = 0
    SLEEP = 1
    WEIGHTS = 2
    EVALUATION = 3
    CHECKPOINT = 4


class HookOff(IntEnum):
    UNKNOWN = 0
    BUDGET = 1  # its p99 exceeded its budget
    FAILED = 2
    ABSENT = 3  # the framework has no such place


class Text(IntEnum):
    REQUEST_ID = 1  # what did not fit inline
    EXTERNAL_ID = 2  # first TEXT_BYTES
    EXTERNAL_ID_REST = 3


# Every slot: kind u16, entries u16, reserved u32, then the payload; zero bytes fill it up.
_SCHEDULED = struct.Struct("<HHIQQQdQIIIIIIfBBBBHH44x")
_MEMBERS_HEAD = struct.Struct("<HHIQ")
_MEMBER = struct.Struct("<QII")
_OUTPUT = struct.Struct("<HHIQQQQQQ72x")
_RANK = struct.Struct("<HHIQQQQQIIIIII56x")
_ARRIVED = struct.Struct(f"<HHIQQ16s8s8sBxHHH{INLINE_ID_BYTES}s")
_TEXT = struct.Struct(f"<HHIQBxH12x{TEXT_BYTES}s")
_EVENT = struct.Struct("<HHIQQQIB91x")
_ENDED = struct.Struct("<HHIQQIIIIIBB82x")
_PAUSE = struct.Struct("<HHIQQB103x")
_HOOK_OFF = struct.Struct("<HHIQQQB7x32s56x")


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
        entries = b"".join(_MEMBER.pack(*entry) for entry in part)
        slots.append((_MEMBERS_HEAD.pack(2, len(part), 0, step) + entries).ljust(SLOT_BYTES, b"\0"))
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
    arrived = _ARRIVED.pack(
        5, 0, 0, handle, arrival_ns, trace_id, span_id, parent_span_id, flags, len(own), len(external), 0,
        own[:INLINE_ID_BYTES],
    )  # fmt: skip
    texts = (
        (Text.REQUEST_ID, own[INLINE_ID_BYTES:]),
        (Text.EXTERNAL_ID, external[:TEXT_BYTES]),
        (Text.EXTERNAL_ID_REST, external[TEXT_BYTES:]),
    )
    return arrived + b"".join(
        _TEXT.pack(6, 0, 0, handle, which, len(text), text) for which, text in texts if text
    )


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


def derive_request_handle(request_id: str) -> int:
    """Return the handle by which every process of an engine knows a request; never 0."""
    digest = hashlib.blake2b(request_id.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def bound_id(text: str) -> bytes:
    """Return an id's bytes, cut to MAX_ID_BYTES with `~` and 16 hex digits of a hash of the whole."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= MAX_ID_BYTES:
        return raw
    kept = raw[: MAX_ID_BYTES - 17].decode("utf-8", "ignore").encode()
    return kept + b"~" + hashlib.sha256(raw).hexdigest()[:16].encode()
