# The writing end of a ring, inside the user's process: pure Python, no numpy, no native library.
# Packed records (ring_records.py) go in; when the reader is slow, records are dropped and counted.
# It never blocks on the reader and, once made, never raises and never faults.
import mmap
import os
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path

from otel_llmprism.native import ring_layout as layout
from otel_llmprism.native.ring_layout import RingError, RingHeader

DEFAULT_SLOTS = 1 << 15  # 4 MiB: over 10 s of 8 ranks at 100 steps/s
_SLOT_SHIFT = 7
# Only a thread that is in the middle of a record holds the lock, for microseconds. If it does not let go,
# it is the caller itself, interrupted by a signal handler that records too: waiting would last for ever.
_LOCK_TIMEOUT_S = 0.05
# x86-64 keeps stores in order by itself; elsewhere publish_fence() below makes them ordered.
_IS_STORE_ORDERED = platform.machine().lower() in {"x86_64", "amd64"}


class RingWriter:
    """One per process; `put` may be called from any of its threads."""

    def __init__(self, path: Path, memory: mmap.mmap, header: RingHeader) -> None:
        self.path = path
        self._memory = memory
        self._view = memoryview(memory)
        self._words = self._view[: layout.HEADER_BYTES].cast("Q")
        self._pid = header.writer_pid
        self._capacity = header.capacity
        self._mask = header.capacity - 1
        self._head = 0
        self._known_tail = 0
        self._lock = threading.Lock()
        self._fence = threading.Lock()
        self._is_open = True

    @classmethod
    def create(
        cls, path: Path, slots: int = DEFAULT_SLOTS, clock: Callable[[], tuple[int, int]] | None = None
    ) -> "RingWriter":
        """Make the file (new, 0600) with all its room allocated; RingError when that cannot be.

        `clock` gives (monotonic ns, realtime ns) read together.
        """
        if not layout.is_valid_capacity(slots):
            raise RingError(f"{slots} slots: take a power of two in {layout.MIN_SLOTS}..{layout.MAX_SLOTS}")
        monotonic_ns, realtime_ns = (clock or read_clocks)()
        pid = os.getpid()
        header = RingHeader(
            layout.REVISION, slots, pid, read_start_ticks(pid) or 0, monotonic_ns, realtime_ns
        )
        return cls(path, _map_new_file(path, header), header)

    def put(self, record: bytes) -> bool:
        """Append one record (whole slots) and publish it at once; False when it was dropped."""
        # A forked child shares the mapping but is not the producer; asked first, since it may also
        # have inherited a held lock.
        if os.getpid() != self._pid:
            return False
        size = len(record)
        count = size >> _SLOT_SHIFT
        if self._lock.locked() and not self._is_let_go():
            self._words[layout.DROPPED_WORD] += 1
            return False
        with self._lock:
            head = self._head
            if not self._is_open or not self._has_room(head, count):
                return False
            start = layout.HEADER_BYTES + ((head & self._mask) << _SLOT_SHIFT)
            end = start + size
            overrun = end - len(self._view)
            if overrun <= 0:
                self._view[start:end] = record
            else:
                self._view[start:] = record[:-overrun]
                self._view[layout.HEADER_BYTES : layout.HEADER_BYTES + overrun] = record[-overrun:]
            if not _IS_STORE_ORDERED:
                order_memory(self._fence)
            self._head = head + count
            # One aligned 8-byte store: a kill before it leaves the slots unseen, after it complete.
            self._words[layout.HEAD_WORD] = self._head
        return True

    def add_hook_time(self, duration_ns: int, /) -> None:
        """Add to the time that hooks took in this process; never raises."""
        if os.getpid() != self._pid:
            return
        # Without the lock, which would cost as much again: two threads that meet here may lose one call's
        # time, and the reader takes a sum that seems to shrink for none.
        try:  # noqa: SIM105  contextlib.suppress costs more than the addition
            self._words[layout.HOOK_TIME_WORD] += duration_ns
        except ValueError:
            pass  # closed by another thread: nobody reads it any more

    @property
    def dropped(self) -> int:
        return self._words[layout.DROPPED_WORD] if self._is_open else 0

    def close(self) -> None:
        """Tell the reader that nothing more will come and unmap; the reader removes the file."""
        if os.getpid() != self._pid:
            return
        if self._lock.locked() and not self._is_let_go():
            # The record under way is finished when the handler that closes returns: no unmapping here.
            self._is_open = False
            self._words[layout.CLOSED_WORD] = 1
            return
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._words[layout.CLOSED_WORD] = 1
                self._words.release()
                self._view.release()
                self._memory.close()

    def _is_let_go(self) -> bool:
        if not self._lock.acquire(timeout=_LOCK_TIMEOUT_S):
            return False
        self._lock.release()
        return True

    def _has_room(self, head: int, count: int) -> bool:
        if head + count - self._known_tail <= self._capacity:
            return True
        self._known_tail = self._words[layout.TAIL_WORD]
        if head + count - self._known_tail <= self._capacity:
            return True
        self._words[layout.DROPPED_WORD] += 1
        return False


def read_clocks() -> tuple[int, int]:
    """Return (CLOCK_MONOTONIC, CLOCK_REALTIME) in ns, read as close together as Python can."""
    return time.monotonic_ns(), time.time_ns()


def read_start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def order_memory(fence: threading.Lock) -> None:
    """Keep memory accesses before the call before those after it, on processors that reorder them.

    Two lock pairs, since one pair only keeps what is inside it inside: the release of the first orders
    what came before, the acquire of the second orders what comes after, and the two stay in order.
    """
    for _ in range(2):
        fence.acquire()
        fence.release()


def _map_new_file(path: Path, header: RingHeader) -> mmap.mmap:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise RingError(f"cannot make the ring {path}: {error.strerror}") from error
    try:
        # Without this a full /dev/shm would show as SIGBUS at some later store.
        os.posix_fallocate(descriptor, 0, header.file_bytes)
        memory = mmap.mmap(descriptor, header.file_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except (OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        raise RingError(
            f"no room for the ring {path} ({header.file_bytes} bytes): {error}; free some room there, "
            f"give the container a larger /dev/shm, or ask for fewer slots"
        ) from error
    finally:
        os.close(descriptor)
    # The magic comes last: a reader that looks early sees a foreign file, never half a header.
    raw = layout.pack_header(header)
    memory[8 : len(raw)] = raw[8:]
    memory[:8] = raw[:8]
    return memory
