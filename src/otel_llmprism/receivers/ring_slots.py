# Slots as they came out of rings -> one structured array per kind, and arrivals with their texts.
# A record whose later slots are still in the ring waits until they came.
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import U8, ArrivalTable
from otel_llmprism.native.ring_dtypes import RING_DTYPES
from otel_llmprism.native.ring_layout import SLOT_BYTES
from otel_llmprism.native.ring_records import (
    INLINE_ID_BYTES,
    MAX_ID_BYTES,
    MEMBERS_PER_SLOT,
    TEXT_BYTES,
    Kind,
    Text,
)

Rows = npt.NDArray[np.void]
DTYPES = {kind: np.dtype(fields) for kind, fields in RING_DTYPES.items()}
_SAME_AS_REQUEST_ID = 4  # ArrivalTable.flags


@dataclass(frozen=True, slots=True)
class SlotGroups:
    rows: dict[Kind, Rows]
    members: Rows  # entries of STEP_MEMBERS one by one, with the step they belong to
    arrivals: ArrivalTable
    text: U8
    unknown_count: int
    malformed_count: int  # records that announce slots which do not follow


class SlotSplitter:
    """Keeps, per ring, the slots of a record that is not complete yet."""

    def __init__(self) -> None:
        self._waiting: dict[int, bytes] = {}

    def split(self, slots: bytes, source: int) -> SlotGroups:
        """Group one drain of ring `source`."""
        raw = np.frombuffer(self._waiting.pop(source, b"") + slots, dtype=np.uint8).reshape(-1, SLOT_BYTES)
        kinds = raw[:, :2].copy().view("<u2").ravel()
        whole, malformed = _count_whole(raw, kinds)
        if whole < len(raw):
            self._waiting[source] = raw[whole:].tobytes()
            raw, kinds = raw[:whole], kinds[:whole]
        rows = {kind: raw[kinds == kind].view(dtype).ravel() for kind, dtype in DTYPES.items()}
        arrivals, text = _read_arrivals(rows, kinds)
        unknown = len(raw) - sum(len(own) for own in rows.values())
        members = _spread_members(rows[Kind.STEP_MEMBERS])
        return SlotGroups(rows, members, arrivals, text, unknown, malformed)


def _count_whole(raw: npt.NDArray[np.uint8], kinds: npt.NDArray[np.uint16]) -> tuple[int, int]:
    """Return how many slots belong to complete records, and how many records are malformed.

    Only the last record can lack slots.
    """
    heads = np.flatnonzero((kinds == Kind.STEP_SCHEDULED) | (kinds == Kind.REQUEST_ARRIVED))
    if not len(heads):
        return len(raw), 0
    last = int(heads[-1])
    kind = Kind(int(kinds[last]))
    head = raw[last].view(DTYPES[kind])[0]
    if kind is Kind.STEP_SCHEDULED:
        more, wanted = -(-int(head["member_count"]) // MEMBERS_PER_SLOT), Kind.STEP_MEMBERS
    else:
        own, external = int(head["request_id_bytes"]), int(head["external_id_bytes"])
        more = (own > INLINE_ID_BYTES) + (external > 0) + (external > TEXT_BYTES)
        wanted = Kind.REQUEST_TEXT
    if last + 1 + more <= len(raw):
        return len(raw), 0
    # A record's slots lie together, so whatever else follows shows that its head is damaged. What waits is
    # then at most the slots that a head can announce: 1.2 MiB for a step's 16 bits of members.
    is_malformed = bool((kinds[last + 1 :] != wanted).any())
    return (len(raw), 1) if is_malformed else (last, 0)


def _spread_members(slots: Rows) -> Rows:
    entries = slots["members"]
    is_used = np.arange(MEMBERS_PER_SLOT) < slots["entries"][:, None]
    members = np.zeros(int(is_used.sum()), dtype=[("step", "<u8"), *entries.dtype.descr])
    for name in entries.dtype.names or ():
        members[name] = entries[name][is_used]
    members["step"] = np.repeat(slots["step"], is_used.sum(axis=1))
    return members


def _read_arrivals(rows: dict[Kind, Rows], kinds: npt.NDArray[np.uint16]) -> tuple[ArrivalTable, U8]:
    heads, texts = rows[Kind.REQUEST_ARRIVED], rows[Kind.REQUEST_TEXT]
    count = len(heads)
    own, external = (np.zeros((count, MAX_ID_BYTES), dtype=np.uint8) for _ in range(2))
    own[:, :INLINE_ID_BYTES] = heads["request_id"]
    # A record's slots lie together: a text belongs to the arrival before it.
    arrived_at = np.flatnonzero(kinds == Kind.REQUEST_ARRIVED)
    owners = np.searchsorted(arrived_at, np.flatnonzero(kinds == Kind.REQUEST_TEXT)) - 1
    rest = MAX_ID_BYTES - TEXT_BYTES
    for which, target, start, size in (
        (Text.REQUEST_ID, own, INLINE_ID_BYTES, TEXT_BYTES),
        (Text.EXTERNAL_ID, external, 0, TEXT_BYTES),
        (Text.EXTERNAL_ID_REST, external, TEXT_BYTES, rest),
    ):
        is_this = (texts["which"] == which) & (owners >= 0)
        target[owners[is_this], start : start + size] = texts["text"][is_this, :size]
    own_bytes = np.minimum(heads["request_id_bytes"], MAX_ID_BYTES)
    external_bytes = np.minimum(heads["external_id_bytes"], MAX_ID_BYTES)
    is_shared = (own == external) & (np.arange(MAX_ID_BYTES) < np.minimum(own_bytes, external_bytes)[:, None])
    shared = np.cumprod(is_shared, axis=1).sum(axis=1).astype(np.uint16)
    rest_bytes = external_bytes - shared
    shared = np.where(heads["flags"] & _SAME_AS_REQUEST_ID, own_bytes, shared)
    text = _join_texts(own, own_bytes, external, external_bytes - rest_bytes, external_bytes)
    trace = heads["trace_id"].copy().view("<u8").reshape(-1, 2)
    arrivals = ArrivalTable(
        handle=heads["handle"].copy(),
        arrival_ns=heads["arrival_ns"].copy(),
        trace_id_high=trace[:, 0],
        trace_id_low=trace[:, 1],
        span_id=heads["span_id"].copy().view("<u8"),
        parent_span_id=heads["parent_span_id"].copy().view("<u8"),
        flags=heads["flags"].copy(),
        request_id_bytes=own_bytes,
        external_shared_bytes=shared.astype(np.uint16),
        external_rest_bytes=rest_bytes,
    )
    return arrivals, text


def _join_texts(
    own: npt.NDArray[np.uint8],
    own_bytes: npt.NDArray[np.uint16],
    external: npt.NDArray[np.uint8],
    from_byte: npt.NDArray[np.uint16],
    to_byte: npt.NDArray[np.uint16],
) -> U8:
    at = np.arange(MAX_ID_BYTES)
    own_part = at < own_bytes[:, None]
    external_part = (at >= from_byte[:, None]) & (at < to_byte[:, None])
    return np.hstack([own, external])[np.hstack([own_part, external_part])]
