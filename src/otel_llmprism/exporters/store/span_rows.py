# One block of spans as plain columns, ready for the writer. Knows no wire format and no database.
from collections.abc import Sequence
from dataclasses import dataclass

MAX_INT64 = (1 << 63) - 1

Piece = tuple[int, int]  # offset and length of a submessage in the block's payload


@dataclass(frozen=True, slots=True)
class SpanRows:
    """Equally long columns, one entry a span, and what the spans of the block share."""

    trace_ids: Sequence[bytes]
    span_ids: Sequence[bytes]
    parent_ids: Sequence[bytes]
    services: Sequence[str]
    names: Sequence[str]
    kinds: Sequence[int]
    statuses: Sequence[int]
    starts_ns: Sequence[int]
    durations_ns: Sequence[int]
    offsets: Sequence[int]
    lengths: Sequence[int]
    resources: Sequence[int]
    scopes: Sequence[int]
    link_counts: Sequence[int]
    resource_pieces: Sequence[Piece]
    scope_pieces: Sequence[Piece]
    tag_hashes: frozenset[int]

    def __len__(self) -> int:
        return len(self.trace_ids)
