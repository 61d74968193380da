# Layout of write-ahead log segments: a header, then framed records, each with two checksums, so that
# damage to a payload costs one record and damage to a header costs a search for the next marker.
# Bytes in, values out; knows no file and no signal. Formats 0 and 1 are read and written.
import struct
import zlib
from dataclasses import dataclass

MAGIC = b"LLMPWAL\n"
MARKER = b"\xf5LPR"
CURRENT_VERSION = 1
READABLE_VERSIONS = (0, 1)
KIND_REQUEST, KIND_SEAL, KIND_DEAD_LETTER = 1, 2, 3
PREFIX = struct.Struct("<8sH")
# magic, version, header size, salt (format 1 only), segment id, created (real time, ns); then a CRC32
_SEGMENT = {0: struct.Struct("<8sHHQQ"), 1: struct.Struct("<8sHHIQQ")}
# marker, CRC32 of what follows it, then: CRC32 of the payload, length, sequence, signal, kind, reserved
# and, in format 1, the acceptance in real time (ns)
_FRONT = struct.Struct("<4sI")
_REST = {0: struct.Struct("<IIIBBH"), 1: struct.Struct("<IIIBBHQ")}
_CRC = struct.Struct("<I")
_ACK = struct.Struct("<II")
ACK_SIZE = _ACK.size


class UnknownFormatError(ValueError):
    """A segment of a format that this program does not read."""


class DamagedHeaderError(ValueError):
    """A segment whose header is not whole."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    version: int
    segment_id: int
    created_ns: int
    salt: int  # random: a payload that quotes a segment cannot pass for records of this one

    @property
    def seed(self) -> int:
        return self.salt ^ (self.segment_id & 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class RecordHeader:
    payload_crc: int
    length: int
    sequence: int  # from 0 in each segment
    signal: int
    kind: int
    accepted_ns: int


def measure_segment_header(version: int) -> int:
    return _SEGMENT[version].size + _CRC.size


def measure_record_header(version: int) -> int:
    return _FRONT.size + _REST[version].size


def encode_segment_header(header: SegmentHeader) -> bytes:
    size = measure_segment_header(header.version)
    salt = () if header.version == 0 else (header.salt,)
    body = _SEGMENT[header.version].pack(
        MAGIC, header.version, size, *salt, header.segment_id, header.created_ns
    )
    return body + _CRC.pack(zlib.crc32(body))


def decode_segment_header(raw: bytes) -> SegmentHeader:
    """Read the header at the start of `raw`; raises when it is damaged or of an unknown format."""
    if len(raw) < PREFIX.size or not raw.startswith(MAGIC):
        raise DamagedHeaderError("it does not start as a log segment does")
    version = PREFIX.unpack_from(raw)[1]
    if version not in READABLE_VERSIONS:
        raise UnknownFormatError(f"format {version}, but this program reads {READABLE_VERSIONS}")
    layout = _SEGMENT[version]
    body = raw[: layout.size]
    if len(raw) < layout.size + _CRC.size or _CRC.unpack_from(raw, layout.size)[0] != zlib.crc32(body):
        raise DamagedHeaderError("the checksum of its header does not fit")
    *_, segment_id, created_ns = layout.unpack(body)
    salt = 0 if version == 0 else layout.unpack(body)[3]
    return SegmentHeader(version, segment_id, created_ns, salt)


def encode_record_header(segment: SegmentHeader, record: RecordHeader) -> bytes:
    accepted = () if segment.version == 0 else (record.accepted_ns,)
    rest = _REST[segment.version].pack(
        record.payload_crc, record.length, record.sequence, record.signal, record.kind, 0, *accepted
    )
    return _FRONT.pack(MARKER, zlib.crc32(rest, segment.seed)) + rest


def decode_record_header(segment: SegmentHeader, raw: bytes, at: int) -> RecordHeader | None:
    """Read the record header at `at`; None when what is there is none. `raw` must reach far enough."""
    layout = _REST[segment.version]
    marker, header_crc = _FRONT.unpack_from(raw, at)
    rest_at = at + _FRONT.size
    if marker != MARKER or header_crc != zlib.crc32(raw[rest_at : rest_at + layout.size], segment.seed):
        return None
    payload_crc, length, sequence, signal, kind, _, *accepted = layout.unpack_from(raw, rest_at)
    accepted_ns = accepted[0] if accepted else segment.created_ns
    return RecordHeader(payload_crc, length, sequence, signal, kind, accepted_ns)


def encode_ack(segment: SegmentHeader, sequence: int) -> bytes:
    return _ACK.pack(sequence, zlib.crc32(sequence.to_bytes(4, "little"), segment.seed))


def decode_acks(segment: SegmentHeader, raw: bytes) -> list[int]:
    """Give the acknowledged sequences; entries that are torn or damaged are left out."""
    whole = raw[: len(raw) - len(raw) % ACK_SIZE]
    seed = segment.seed
    return [
        sequence
        for sequence, crc in _ACK.iter_unpack(whole)
        if crc == zlib.crc32(sequence.to_bytes(4, "little"), seed)
    ]
