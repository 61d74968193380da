# Reads one segment in order, steps over what was freed, and finds its way past damage.
# Bytes come through a window so that small records cost no system call each. Pipeline thread only.
import os
import zlib
from dataclasses import dataclass

from otel_llmprism.native.log_frame import (
    KIND_SEAL,
    MARKER,
    RecordHeader,
    decode_record_header,
    measure_record_header,
    measure_segment_header,
)
from otel_llmprism.pipeline.log.acks import AckedSet
from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.pipeline.log.segment import Segment

WINDOW_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class LogRecord:
    segment: Segment
    sequence: int
    signal: int
    kind: int
    accepted_ns: int
    payload: bytes


class SegmentReader:
    """`damaged_records` and `is_torn` say what was passed over so far."""

    def __init__(self, segment: Segment, disk: Disk, acked: AckedSet | None = None) -> None:
        self.segment = segment
        self.damaged_records = 0
        self.is_torn = False
        self._acked = acked or AckedSet()
        self._disk = disk
        self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        self._header_size = measure_record_header(segment.header.version)
        self._at = measure_segment_header(segment.header.version)
        self._next_sequence = 0
        self._limit = 0  # bytes beyond it may still be rewritten: never read
        self._window = b""
        self._window_at = 0

    def seek(self, at: int, sequence: int) -> None:
        """Go to the record `sequence`, which starts at `at`."""
        self._at, self._next_sequence = at, sequence

    def read_next(self) -> LogRecord | None:
        """Give the next record that was not freed; None at the end (of what is written so far)."""
        limit = self._limit = self.segment.size
        while self._at + self._header_size <= limit:
            header = self._decode_at(self._at)
            if header is None:
                self._find_next_header(limit)
                continue
            record = self._read_record(header, limit)
            if record is not None:
                return record
        self._note_tail(limit)
        return None

    def close(self) -> None:
        os.close(self._fd)

    def _read_record(self, header: RecordHeader, limit: int) -> LogRecord | None:
        start = self._at + self._header_size
        if start + header.length > limit:  # the header is whole, so the file was cut: an unfinished write
            self.is_torn, self._at = True, limit
            return None
        missing_from, self._next_sequence = self._next_sequence, header.sequence + 1
        gap = header.sequence - missing_from
        self.damaged_records += gap - self._acked.count_between(missing_from, header.sequence)
        self._at = start + header.length
        if header.kind == KIND_SEAL:
            self._at = limit
            return None
        if header.sequence in self._acked:
            return None
        payload = self._read(start, header.length)
        if zlib.crc32(payload) != header.payload_crc:
            self.damaged_records += 1
            return None
        return LogRecord(
            self.segment, header.sequence, header.signal, header.kind, header.accepted_ns, payload
        )

    def _decode_at(self, at: int) -> RecordHeader | None:
        raw = self._read(at, self._header_size)
        header = decode_record_header(self.segment.header, raw, 0) if len(raw) == self._header_size else None
        return header if header is not None and header.sequence >= self._next_sequence else None

    def _find_next_header(self, limit: int) -> None:
        """Go to the next whole record header, or to the end: then say what kind of end it is."""
        damaged_at = self._at
        at = damaged_at + 1
        while at + self._header_size <= limit:
            self._fill(at, self._header_size)
            found = self._window.find(MARKER, at - self._window_at)
            if found < 0:
                at = self._window_at + max(len(self._window) - len(MARKER) + 1, 1)
                continue
            at = self._window_at + found
            header = self._decode_at(at) if at + self._header_size <= limit else None
            if header is not None and at + self._header_size + header.length <= limit:
                self._at = at
                return
            at += 1
        self._at = limit
        if any(self._read(damaged_at, self._header_size)):
            self.damaged_records += 1  # a whole header that does not fit its checksum: no unfinished write
        else:
            self.is_torn = True  # zeros: space that a power cut left without its bytes

    def _note_tail(self, limit: int) -> None:
        """Judge a rest too short for a header; while the segment still grows there is none."""
        if self._at < limit:
            self.is_torn, self._at = True, limit

    def _read(self, at: int, size: int) -> bytes:
        if size >= WINDOW_BYTES // 2 and not self._is_in_window(at, size):
            return self._disk.read(self._fd, size, at)
        self._fill(at, size)
        start = at - self._window_at
        return self._window[start : start + size]

    def _fill(self, at: int, size: int) -> None:
        if not self._is_in_window(at, size):
            self._window = self._disk.read(self._fd, min(max(WINDOW_BYTES, size), self._limit - at), at)
            self._window_at = at

    def _is_in_window(self, at: int, size: int) -> bool:
        return self._window_at <= at and at + size <= self._window_at + len(self._window)
