# Affinity squeezed: all threads of an engine, or of one rank, on one core, as a wrong pinning does it.
import os
from collections.abc import Sequence

from otel_llmprism.testing.faults.process_threads import list_threads


class AffinitySqueeze:
    """Puts every thread of `pids` onto `core`, and back where each was."""

    layer = "host"

    def __init__(self, pids: Sequence[int], target: str, core: int) -> None:
        self.target = target
        self._pids = tuple(pids)
        self._core = core
        self._before: dict[int, set[int]] = {}

    def prepare(self) -> None:
        """Nothing is needed: the kernel does it."""

    def start(self, intensity: float) -> None:  # noqa: ARG002  it is what it is
        for thread in (thread for pid in self._pids for thread in list_threads(pid)):
            try:
                self._before[thread] = os.sched_getaffinity(thread)
                os.sched_setaffinity(thread, {self._core})
            except OSError:
                continue  # it ended meanwhile

    def stop(self) -> None:
        for thread in (thread for pid in self._pids for thread in list_threads(pid)):
            # A thread begun meanwhile goes where its process may.
            cores = self._before.get(thread) or next(iter(self._before.values()), set())
            try:
                os.sched_setaffinity(thread, cores)
            except OSError:
                continue  # it ended meanwhile
        self._before.clear()

    def close(self) -> None:
        self.stop()
