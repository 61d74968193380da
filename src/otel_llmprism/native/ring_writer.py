# The writing end of a ring, inside the user's process: no numpy; the extension puts where there is one.
# Packed records (ring_records.py) go in; when the reader is slow, records are dropped and counted.
# It never blocks on the reader and, once made, never raises and never faults.
import mmap
import os
import platform
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otel_llmprism.native import ring_layout as layout
from otel_llmprism.native.extension import load_extension
from otel_llmprism.native.ring_layout import RingError, RingHeader

DEFAULT_SLOTS = 1 << 15  # 4 MiB: over 10 s of 8 ranks at 100 steps/s
_SLOT_SHIFT = 7
# A module's attribute is two lookups more than its own name, and each may miss the caches.
_HEADER_BYTES, _HEAD_WORD = layout.HEADER_BYTES, layout.HEAD_WORD
_HOOK_TIME_WORD = layout.HOOK_TIME_WORD
# Only a thread that is in the middle of a record holds the lock, for microseconds. If it does not let go,
# it is the caller itself, interrupted by a signal handler that records too: waiting would last for ever.
_LOCK_TIMEOUT_S = 0.05
# x86-64 keeps stores in order by itself; elsewhere publish_fence() below makes them ordered.
_IS_STORE_ORDERED = platform.machine().lower() in {"x86_64", "amd64"}


class RingWriter:
    """One per process; `put` may be called from any of its threads."""

    __slots__ = (
        "__weakref__",
        "_capacity",
        "_end",
        "_fence",
        "_is_open",
        "_limit",
        "_lock",
        "_mask",
        "_memory",
        "_view",
        "_words",
        "native",
        "path",
    )

    def __init__(self, path: Path, memory: mmap.mmap, header: RingHeader) -> None:
        self.path = path
        self._memory = memory
        self._view = memoryview(memory)
        self._words = self._view[:_HEADER_BYTES].cast("Q")
        self._end = len(self._view)
        self._capacity = header.capacity
        self._mask = header.capacity - 1
        self._limit = header.capacity  # the head may go so far before the tail is read again
        self._lock = threading.Lock()
        self._fence = threading.Lock()
        self._is_open = True
        extension = load_extension()
        self.native: Any = extension.SlotRing(memory) if extension else None
        _writers.add(self)

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
        if self.native is not None:
            return bool(self.native.put(record))
        lock = self._lock
        if lock.locked() and not self._is_let_go():
            self._words[layout.DROPPED_WORD] += 1
            return False
        # Not acquire() and release(): a handler that raises between them would leave the lock held for ever.
        with lock:
            if not self._is_open:
                return False
            head = self._words[_HEAD_WORD]
            size = len(record)
            after = head + (size >> _SLOT_SHIFT)
            if after > self._limit and not self._has_room(after):
                return False
            start = _HEADER_BYTES + ((head & self._mask) << _SLOT_SHIFT)
            end = start + size
            if end <= self._end:
                self._view[start:end] = record
            else:
                overrun = end - self._end
                self._view[start:] = record[:-overrun]
                self._view[_HEADER_BYTES : _HEADER_BYTES + overrun] = record[-overrun:]
            if not _IS_STORE_ORDERED:
                order_memory(self._fence)
            # One aligned 8-byte store: a kill before it leaves the slots unseen, after it complete.
            self._words[_HEAD_WORD] = after
        return True

    def add_hook_time(self, duration_ns: int, /) -> None:
        """Add to the time that hooks took in this process; never raises."""
        # Without the lock, which would cost as much again: two threads that meet here may lose one call's
        # time, and the reader takes a sum that seems to shrink for none.
        try:  # noqa: SIM105  contextlib.suppress costs more than the addition
            self._words[_HOOK_TIME_WORD] += duration_ns
        except ValueError:
            pass  # closed by another thread: nobody reads it any more

    @property
    def dropped(self) -> int:
        return self._words[layout.DROPPED_WORD] if self._is_open else 0

    @property
    def _head(self) -> int:
        return self._words[_HEAD_WORD] if self._is_open else 0

    def close(self) -> None:
        """Tell the reader that nothing more will come and unmap; the reader removes the file."""
        if self.native is not None:
            self.native.close()
        if self._lock.locked() and not self._is_let_go():
            # The record under way is finished when the handler that closes returns: no unmapping here.
            if self._is_open:
                self._shut()
            return
        with self._lock:
            if self._is_open:
                self._shut()
                self._words.release()
                self._view.release()
                self._memory.close()

    def abandon(self) -> None:
        """Let go of the ring in a forked child, which shares the mapping but is not its producer."""
        if self.native is not None:
            self.native.close()
        self._lock, self._fence = threading.Lock(), threading.Lock()  # a thread of the parent may hold them
        self._is_open, self._limit = False, -1
        # For a fork inside a signal handler inside a record: what that record publishes goes nowhere.
        self._view = memoryview(bytearray(_HEADER_BYTES))
        self._words = self._view.cast("Q")

    def _shut(self) -> None:
        self._is_open, self._limit = False, -1
        self._words[layout.CLOSED_WORD] = 1

    def _is_let_go(self) -> bool:
        if not self._lock.acquire(timeout=_LOCK_TIMEOUT_S):
            return False
        self._lock.release()
        return True

    def _has_room(self, after: int) -> bool:
        self._limit = self._words[layout.TAIL_WORD] + self._capacity
        if after <= self._limit:
            return True
        self._words[layout.DROPPED_WORD] += 1
        return False


# Asking the kernel for the process id before each record would cost as much as the record itself.
_writers: "weakref.WeakSet[RingWriter]" = weakref.WeakSet()


def _abandon_after_fork() -> None:
    for writer in list(_writers):
        writer.abandon()
    _writers.clear()


os.register_at_fork(after_in_child=_abandon_after_fork)


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
