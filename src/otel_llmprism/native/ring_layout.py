# The bytes of a ring file's header: one file per writing process, fixed slots behind one header.
# Layout only; who maps the file and moves head and tail is ring_writer.py and ring_reader.py.
import struct
from dataclasses import dataclass

MAGIC = b"LLMPRING"
VERSION = 1
REVISION = 0  # layout within the version; a reader takes this one and the one before
BEFORE = (0, 2)  # the version and revision before
HEADER_BYTES = 256
SLOT_BYTES = 128
MIN_SLOTS, MAX_SLOTS = 8, 1 << 22

# Positions of the words that change after creation, in units of 8 bytes. Writer's and reader's words lie
# on cache lines of their own, so that neither side's stores slow the other.
HEAD_WORD, DROPPED_WORD, CLOSED_WORD = 8, 9, 10
HOOK_TIME_WORD = 11  # ns
TAIL_WORD = 16

# magic, version, revision, header bytes, slot bytes, capacity, writer pid, (pad), writer start ticks,
# monotonic anchor, realtime anchor
_FIXED = struct.Struct("<8sHHIIIIIQQQ")


class RingError(Exception):
    """A ring cannot be made or read; the text says why and how to mend it."""


@dataclass(frozen=True, slots=True)
class RingHeader:
    revision: int
    capacity: int  # slots, a power of two
    writer_pid: int
    writer_start_ticks: int  # from /proc, so that a reused pid is not taken for the writer
    anchor_monotonic_ns: int
    anchor_realtime_ns: int

    @property
    def file_bytes(self) -> int:
        return HEADER_BYTES + self.capacity * SLOT_BYTES


def pack_header(header: RingHeader) -> bytes:
    """Return the first HEADER_BYTES of a fresh ring: head, tail and all that is counted are zero."""
    fixed = _FIXED.pack(
        MAGIC,
        VERSION,
        header.revision,
        HEADER_BYTES,
        SLOT_BYTES,
        header.capacity,
        header.writer_pid,
        0,
        header.writer_start_ticks,
        header.anchor_monotonic_ns,
        header.anchor_realtime_ns,
    )
    return fixed.ljust(HEADER_BYTES, b"\0")


def parse_header(raw: bytes, file_bytes: int) -> RingHeader:
    """Read and check a header; RingError names what is foreign, newer, older or torn."""
    if len(raw) < HEADER_BYTES:
        raise RingError(f"the file has {len(raw)} bytes, less than a ring's header of {HEADER_BYTES}")
    magic, version, revision, header_bytes, slot_bytes, capacity, pid, _, ticks, mono, real = (
        _FIXED.unpack_from(raw)
    )
    if magic != MAGIC:
        raise RingError("the file is no ring (or its writer died while making it)")
    if (version, revision) not in {(VERSION, REVISION), BEFORE}:
        raise RingError(
            f"the ring has format {version}.{revision}, this reader knows {BEFORE[0]}.{BEFORE[1]} and "
            f"{VERSION}.{REVISION}: run the exporter of the release that wrote it"
        )
    if (header_bytes, slot_bytes) != (HEADER_BYTES, SLOT_BYTES) or not is_valid_capacity(capacity):
        raise RingError(f"impossible sizes (header {header_bytes}, slot {slot_bytes}, slots {capacity})")
    header = RingHeader(revision, capacity, pid, ticks, mono, real)
    if header.file_bytes != file_bytes:
        raise RingError(f"the ring is torn: {file_bytes} bytes where its header asks {header.file_bytes}")
    return header


def is_valid_capacity(capacity: int) -> bool:
    return MIN_SLOTS <= capacity <= MAX_SLOTS and capacity & (capacity - 1) == 0
