# The bytes of a ledger segment on disk: a header that says whose ledger it is, then framed records, each
# with a checksum. A torn or damaged frame ends what can be read of a segment, never more.
import json
import struct
import zlib
from dataclasses import dataclass

MAGIC = b"LLPSEG\r\n"
VERSION = 1  # 0, the one before, has the same bytes after it
MAX_OWNER_BYTES = 1 << 16
MAX_BODY_BYTES = 1 << 20

_HEADER = struct.Struct("<8sHHII")  # magic, version, reserved, owner bytes, checksum of the owner
_FRAME = struct.Struct("<IIBxxxqqqq")  # checksum of all that follows, body bytes, event, numbers below
_EVENTS = ("llmprism.ledger", "llmprism.host")
FRAME_BYTES = _FRAME.size
HEADER_BYTES = _HEADER.size


class SegmentError(ValueError):
    """A segment, or what is left of it, cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class SegmentOwner:
    """Whose records a segment holds, and what spans made of them later carry."""

    engine_id: str
    run: str
    node: str
    resource: dict[str, str | int | float | bool]
    requests: dict[str, str]  # attributes that all requests of the run share


@dataclass(frozen=True, slots=True)
class Frame:
    event_name: str
    seq: int
    time_ns: int  # real time of the chunk's anchor
    first_step: int  # -1: none
    last_step: int
    body_bytes: int
    checksum: int


def pack_header(owner: SegmentOwner) -> bytes:
    """Return the start of a segment."""
    raw = json.dumps([owner.engine_id, owner.run, owner.node, owner.resource, owner.requests]).encode()
    if len(raw) > MAX_OWNER_BYTES:
        raise SegmentError(f"resource attributes of {len(raw)} bytes, a segment takes {MAX_OWNER_BYTES}")
    return _HEADER.pack(MAGIC, VERSION, 0, len(raw), zlib.crc32(raw)) + raw


def measure_header(raw: bytes) -> int:
    """Return the size of the whole header whose first HEADER_BYTES are given."""
    if len(raw) < HEADER_BYTES or not raw.startswith(MAGIC):
        raise SegmentError("not a ledger segment")
    _, version, _, size, _ = _HEADER.unpack_from(raw)
    if version not in {VERSION, VERSION - 1}:
        raise SegmentError(
            f"segment format {version}, this reader knows {VERSION - 1} and {VERSION}: use a newer release"
        )
    if size > MAX_OWNER_BYTES:
        raise SegmentError("its header is damaged")
    return HEADER_BYTES + int(size)


def parse_header(raw: bytes) -> SegmentOwner:
    """Read a whole header."""
    size = measure_header(raw)
    owner = raw[HEADER_BYTES:size]
    if len(raw) < size or zlib.crc32(owner) != _HEADER.unpack_from(raw)[4]:
        raise SegmentError("its header is damaged")
    return SegmentOwner(*json.loads(owner))


def pack_frame(
    event_name: str, seq: int, time_ns: int, body: bytes, *, first_step: int = -1, last_step: int = -1
) -> bytes:
    """Return one record ready to append."""
    numbers = (len(body), _EVENTS.index(event_name), seq, time_ns, first_step, last_step)
    rest = _FRAME.pack(0, *numbers)[4:]
    return _FRAME.pack(zlib.crc32(body, zlib.crc32(rest)), *numbers) + body


def parse_frame(raw: bytes) -> Frame:
    """Read a frame's head; check_body tells whether it and the body are whole."""
    if len(raw) < FRAME_BYTES:
        raise SegmentError("the last record is torn")
    checksum, body_bytes, event, seq, time_ns, first, last = _FRAME.unpack_from(raw)
    if body_bytes > MAX_BODY_BYTES or event >= len(_EVENTS):
        raise SegmentError("a frame is damaged")
    return Frame(_EVENTS[event], seq, time_ns, first, last, body_bytes, checksum)


def check_body(raw_head: bytes, body: bytes) -> bool:
    return zlib.crc32(body, zlib.crc32(raw_head[4:FRAME_BYTES])) == parse_frame(raw_head).checksum
