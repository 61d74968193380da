# The ring as recorders see it. Now and then, and when a record was dropped, it is worth a look whether the
# exporter process died; a few times it is started again. Other processes' rings depend on this look too.
import os
import time
from collections.abc import Callable
from typing import Any

from otel_llmprism.native.ring import RingWriter

MAX_RESTARTS = 3  # an exporter that dies again and again is not coming back
LOOK_EVERY_NS = 1_000_000_000
LOOK_EVERY_PUTS = 16  # a front end's ring takes hours to fill, that of the core behind it seconds


class WatchedRing:
    """Costs one call more than the ring itself, and every so often a look at a clock or a process."""

    def __init__(
        self,
        writer: RingWriter,
        start: Callable[[], int],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.exporter_pid = start()
        self._writer = writer
        self._start = start
        self._clock = clock
        self._pid = os.getpid()
        self._restarts = 0
        self._puts = 0
        self._next_look_ns = 0
        self.native: Any = writer.native
        if self.native is not None:  # which counts for itself
            self.native.watch(self._look_after_exporter)

    def put(self, record: bytes, /) -> bool:
        """Append a record; False when it was dropped."""
        if self.native is not None:
            return bool(self.native.put(record))
        is_put = self._writer.put(record)
        self._puts += 1
        if not is_put or self._puts >= LOOK_EVERY_PUTS:
            self._puts = 0
            self._look_after_exporter()
        return is_put

    def add_hook_time(self, duration_ns: int, /) -> None:
        """Add to the time that hooks took in this process."""
        self._writer.add_hook_time(duration_ns)

    def _look_after_exporter(self) -> None:
        now_ns = self._clock()
        is_ours = os.getpid() == self._pid  # a forked child must not start another
        if now_ns < self._next_look_ns or self._restarts >= MAX_RESTARTS or not is_ours:
            return
        self._next_look_ns = now_ns + LOOK_EVERY_NS
        if has_ended(self.exporter_pid):
            self._restarts += 1
            self.exporter_pid = self._start()


def has_ended(pid: int) -> bool:
    """Tell whether a child has ended, and let the kernel forget it; waits for nothing."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True  # somebody else in this process has waited for it
