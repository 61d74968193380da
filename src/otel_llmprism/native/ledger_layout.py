# The bytes around a ledger chunk's columns, and the words for what can be wrong with them.
# Same layout as llmprism/ledger.h; columns themselves are ledger_schema.py's.
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"LLPL"
VERSION = 1  # as `llmprism.ledger.version` says it
REVISION = 0  # layout within the version; a reader takes this one and the one before
BEFORE = (0, 1)  # the version and revision before
MAX_CHUNK_BYTES = 1 << 20
FREE_ROWS = 1024  # rows of all tables beyond this many take a byte each: bounds what bytes can swell to
MODE_DELTA, MODE_RELATIVE = 1, 2

CHUNK_HEADER = struct.Struct("<4sBBHHHIQQQQ")
COLUMN_HEADER = struct.Struct("<HBBIQQ")


class Status(IntEnum):
    OK = 0
    TRUNCATED = 1
    FOREIGN = 2
    NEWER = 3
    TOO_OLD = 4
    TOO_MANY_ROWS = 5
    BAD_COLUMN = 6
    TRAILING_BYTES = 7
    BAD_INDEX = 8


WHY = {
    Status.TRUNCATED: "the chunk ends early",
    Status.FOREIGN: "not a ledger chunk",
    Status.NEWER: f"a newer format than {VERSION}.{REVISION}: upgrade the reader first, then the engines",
    Status.TOO_OLD: f"an older format than {BEFORE[0]}.{BEFORE[1]}: read it with the release before",
    Status.TOO_MANY_ROWS: "more rows or bytes than a chunk may have",
    Status.BAD_COLUMN: "a column that is unknown, doubled or impossibly wide",
    Status.TRAILING_BYTES: "bytes after the last column",
    Status.BAD_INDEX: "a number that names a row which is not there",
}


@dataclass(frozen=True, slots=True)
class ChunkAnchor:
    """A chunk's place: its steps, and one moment read on both clocks."""

    first_step: int
    last_step: int
    anchor_monotonic_ns: int
    anchor_realtime_ns: int


@dataclass(frozen=True, slots=True)
class PackedColumn:
    id: int
    mode: int
    width: int
    base: int
    first: int
    packed: bytes


def pack_chunk(anchor: ChunkAnchor, rows: Sequence[int], columns: Sequence[PackedColumn]) -> bytes:
    """Put header, row counts of the tables and columns together."""
    parts = [struct.pack(f"<{len(rows)}I", *rows)]
    for column in columns:
        head = COLUMN_HEADER.pack(column.id, column.mode, column.width, 0, column.base, column.first)
        parts += (head, column.packed)
    body = b"".join(parts)
    header = CHUNK_HEADER.pack(
        MAGIC,
        VERSION,
        REVISION,
        len(rows),
        len(columns),
        0,
        CHUNK_HEADER.size + len(body),
        anchor.first_step,
        anchor.last_step,
        anchor.anchor_monotonic_ns,
        anchor.anchor_realtime_ns,
    )
    return header + body


def parse_anchor(chunk: bytes) -> ChunkAnchor:
    """Read the place of a chunk that was already accepted by decode_chunks."""
    return ChunkAnchor(*CHUNK_HEADER.unpack_from(chunk)[7:])
