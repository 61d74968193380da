# The reading end of a ring, in the exporter process: committed slots come out as bytes.
# It outlives the writer (also a killed one) and continues at the tail after its own restart.
import mmap
import os
import stat
import threading
from pathlib import Path

from otel_llmprism.native import ring_layout as layout
from otel_llmprism.native.ring_layout import RingError, RingHeader
from otel_llmprism.native.ring_writer import order_memory, read_start_ticks


class RingReader:
    """The only consumer of one ring; not thread-safe."""

    def __init__(self, path: Path, memory: mmap.mmap, header: RingHeader) -> None:
        self.path = path
        self.header = header
        self.overrun_count = 0  # slots lost because head and tail made no sense
        self._memory = memory
        self._view = memoryview(memory)
        self._words = self._view[: layout.HEADER_BYTES].cast("Q")
        self._fence = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> "RingReader":
        """Map an existing ring; RingError for a foreign, torn, newer or too old file."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise RingError(f"cannot open the ring {path}: {error.strerror}") from error
        try:
            header = _check_file(descriptor)
            memory = mmap.mmap(descriptor, header.file_bytes, flags=mmap.MAP_SHARED)
        except (RingError, OSError, ValueError) as error:
            raise RingError(f"{path}: {error}") from error
        finally:
            os.close(descriptor)
        return cls(path, memory, header)

    def drain(self, max_slots: int) -> bytes:
        """Take up to `max_slots` published slots, oldest first; a record's slots may be split."""
        head = self._words[layout.HEAD_WORD]
        order_memory(self._fence)
        tail = self._find_tail(head)
        count = min(head - tail, max_slots)
        if count <= 0:
            return b""
        mask = self.header.capacity - 1
        first = tail & mask
        until_end = min(count, self.header.capacity - first)
        slots = self._copy(first, until_end)
        if until_end < count:
            slots += self._copy(0, count - until_end)
        order_memory(self._fence)
        self._words[layout.TAIL_WORD] = tail + count
        return slots

    @property
    def dropped(self) -> int:
        """Records the writer had no room for."""
        return self._words[layout.DROPPED_WORD]

    @property
    def hook_time_ns(self) -> int:
        """Time the writer's hooks took, as far as it told."""
        return self._words[layout.HOOK_TIME_WORD]

    @property
    def pending(self) -> int:
        head = self._words[layout.HEAD_WORD]
        return head - self._find_tail(head)

    def is_finished(self) -> bool:
        """Tell whether the writer closed the ring or is gone; what is pending can still be drained."""
        if self._words[layout.CLOSED_WORD]:
            return True
        return read_start_ticks(self.header.writer_pid) != self.header.writer_start_ticks

    def close(self, *, remove: bool = False) -> None:
        """Unmap; with `remove` the file goes too (the reader's duty once it is finished)."""
        self._words.release()
        self._view.release()
        self._memory.close()
        if remove:
            self.path.unlink(missing_ok=True)

    def _find_tail(self, head: int) -> int:
        tail = self._words[layout.TAIL_WORD]
        if tail <= head and head - tail <= self.header.capacity:
            return tail
        # Only a damaged file gets here: take what can still be in the ring.
        kept = max(0, head - self.header.capacity)
        self.overrun_count += max(0, kept - tail)
        return kept

    def _copy(self, first: int, count: int) -> bytes:
        start = layout.HEADER_BYTES + first * layout.SLOT_BYTES
        return bytes(self._view[start : start + count * layout.SLOT_BYTES])


def _check_file(descriptor: int) -> RingHeader:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise RingError("not a regular file of this user")
    return layout.parse_header(os.pread(descriptor, layout.HEADER_BYTES, 0), status.st_size)
