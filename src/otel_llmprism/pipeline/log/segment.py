# One file of the log: its counts, and the writer while it is the newest. Signals are numbers here.
# Not thread-safe: the log's lock guards it; only `sync` may be waited on without.
import contextlib
import os
import zlib
from pathlib import Path

from otel_llmprism.native.log_frame import (
    ACK_SIZE,
    KIND_SEAL,
    RecordHeader,
    SegmentHeader,
    encode_record_header,
    encode_segment_header,
    measure_record_header,
)
from otel_llmprism.pipeline.log.acks import MAX_RECORDS, AckFile
from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.pipeline.log.folder import ACK_SUFFIX
from otel_llmprism.pipeline.log.group_sync import GroupSync


class Segment:
    """`total` records were or will be handed out (None: of an earlier run, not read through yet)."""

    def __init__(self, path: Path, header: SegmentHeader, size: int, disk: Disk) -> None:
        self.path = path
        self.header = header
        self.size = size
        self.total: int | None = None
        self.freed = 0
        self.is_of_earlier_run = True
        self.acks = AckFile(path.with_suffix(ACK_SUFFIX), header, disk)
        self.sync: GroupSync | None = None

    def is_spent(self) -> bool:
        """Whether every record in it was freed, as far as is known."""
        return self.total is not None and self.freed >= self.total

    def measure(self) -> int:
        """Bytes on the disk, with room for the acknowledgements of all that this run wrote."""
        return self.size + (self.acks.size if self.is_of_earlier_run else ACK_SIZE * (self.total or 0))

    def close(self) -> None:
        self.acks.close()
        if self.sync is not None:
            self.sync.close(is_delivered=self.is_spent())


class SegmentWriter:
    """The newest segment while it grows. A write that fails leaves no trace, or breaks the writer."""

    def __init__(self, segment: Segment, fd: int, disk: Disk) -> None:
        self.segment = segment
        self.is_broken = False
        self._fd = fd
        self._disk = disk
        self._sequence = 0

    def append(self, signal: int, kind: int, payload: bytes, payload_crc: int, accepted_ns: int) -> int:
        """Write one record and give its sequence; raises OSError with the file as it was before."""
        record = RecordHeader(payload_crc, len(payload), self._sequence, signal, kind, accepted_ns)
        self._write([encode_record_header(self.segment.header, record), payload])
        self._sequence += 1
        self.segment.total = self._sequence
        return record.sequence

    def has_room(self, payload_size: int, segment_bytes: int) -> bool:
        """Whether one more record may go here: an empty segment takes any size."""
        if self.is_broken or (self.segment.sync is not None and self.segment.sync.has_failed):
            return False
        frame = measure_record_header(self.segment.header.version) + payload_size
        return self._sequence == 0 or (
            self.segment.size + frame <= segment_bytes and self._sequence < MAX_RECORDS
        )

    def seal(self) -> None:
        """Say that nothing follows, so that a reader can tell damage at the end from a crash; close."""
        if not self.is_broken:
            end = RecordHeader(zlib.crc32(b""), 0, self._sequence, 0, KIND_SEAL, 0)
            with contextlib.suppress(OSError):  # without it the end only reads as a crash
                self._write([encode_record_header(self.segment.header, end)])
        os.close(self._fd)

    def _write(self, parts: list[bytes]) -> None:
        try:
            self._disk.write(self._fd, parts)
        except OSError:
            try:
                self._disk.truncate(self._fd, self.segment.size)
            except OSError:
                self.is_broken = True
            raise
        self.segment.size += sum(map(len, parts))
        if self.segment.sync is not None:
            self.segment.sync.note_written(self.segment.size)


def create_segment(path: Path, header: SegmentHeader, disk: Disk, *, is_synced: bool) -> SegmentWriter:
    """Make a segment file with its header; raises OSError and leaves nothing behind."""
    fd = disk.create(path)
    raw = encode_segment_header(header)
    try:
        disk.write(fd, [raw])
    except OSError:
        os.close(fd)
        with contextlib.suppress(OSError):
            disk.remove(path)
        raise
    segment = Segment(path, header, len(raw), disk)
    segment.total = 0
    segment.is_of_earlier_run = False
    if is_synced:
        segment.sync = GroupSync(fd, disk)
        segment.sync.note_written(len(raw))
    return SegmentWriter(segment, fd, disk)
