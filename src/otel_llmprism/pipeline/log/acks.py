# Which records of a segment were freed: an append-only file of checksummed sequence numbers beside it.
# Losing the end of it only sends a record twice; a damaged entry frees nothing.
import os
from pathlib import Path

from otel_llmprism.native.log_frame import ACK_SIZE, SegmentHeader, decode_acks, encode_ack
from otel_llmprism.pipeline.log.disk import Disk

MAX_RECORDS = 1 << 20  # in one segment


class AckFile:
    """Opened on the first entry. Not thread-safe: the log's lock guards it."""

    def __init__(self, path: Path, header: SegmentHeader, disk: Disk) -> None:
        self.path = path
        self.size = 0
        self._header = header
        self._disk = disk
        self._fd = -1

    def add(self, sequence: int) -> None:
        """Write one entry; raises OSError when the disk refuses."""
        if self._fd < 0:
            self._fd = self._disk.open_append(self.path)
        try:
            self._disk.write(self._fd, [encode_ack(self._header, sequence)])
        except OSError:
            # a torn entry would shift all later ones: cut it, or write no more to this file
            self._disk.truncate(self._fd, self.size)
            raise
        self.size += ACK_SIZE

    def measure(self) -> None:
        """Take the size of what an earlier run wrote, and cut a torn last entry: later ones stay aligned."""
        if self.path.exists():
            found = self.path.stat().st_size
            self.size = found - found % ACK_SIZE
            if self.size != found:
                os.truncate(self.path, self.size)

    def load(self) -> "AckedSet":
        """Read what an earlier run freed; raises OSError when it cannot be read."""
        acked = AckedSet()
        if self.size:
            raw = self.path.read_bytes()
            for sequence in decode_acks(self._header, raw):
                acked.add(sequence)
        return acked

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class AckedSet:
    """Sequence numbers as one byte each: at most MAX_RECORDS bytes a segment."""

    def __init__(self) -> None:
        self._flags = bytearray()

    def add(self, sequence: int) -> None:
        if sequence >= MAX_RECORDS:
            return
        if sequence >= len(self._flags):
            self._flags.extend(bytes(sequence + 1 - len(self._flags)))
        self._flags[sequence] = 1

    def __contains__(self, sequence: int) -> bool:
        return sequence < len(self._flags) and self._flags[sequence] == 1

    def count_between(self, first: int, end: int) -> int:
        """How many of [first, end) are acknowledged."""
        return self._flags.count(1, first, end)
