# Where the exporter runs: on cores that no thread of the engine is bound to, with the least say over the
# others. Thread affinities come in from the kernel; the choice itself is a pure function.
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

Cores = frozenset[int]


def yield_priority() -> None:
    """Give way to the engine on cores that it shares with us. Call it before any thread is started."""
    os.nice(10)
    # A batch task that wakes up never interrupts the one that runs: the engine keeps its turn.
    with contextlib.suppress(OSError):  # a sandbox may refuse; niceness is what counts
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def choose_cores(own: Cores, bound: Iterable[Cores]) -> Cores:
    """Return the cores of `own` to run on, given the affinity of each thread of the engine.

    Avoids every core that a thread is bound to; where that leaves none, those that a thread is bound to
    alone (OpenMP's places); where that leaves none either, all of `own`. A thread that may run on all of
    `own` is bound to nothing.
    """
    masks = {mask for mask in bound if not mask >= own}
    for size in (len(own), 1):
        left = own.difference(*(mask for mask in masks if len(mask) <= size))
        if left:
            return left
    return own


class Placement:
    """Keeps this process off the engine's cores while its threads come, go and bind themselves."""

    def __init__(self) -> None:
        self._own = frozenset(os.sched_getaffinity(0))
        self._chosen = self._own

    def follow(self, pids: Iterable[int], proc: Path = Path("/proc")) -> Cores:
        """Move all threads of this process off the cores that `pids` are bound to; return where to.

        We may run where the engine may: a thread that was bound to one core, as OpenMP does it, may have
        started us, and we inherited that core alone. Never elsewhere: the rest is not the engine's.
        """
        masks = [mask for pid in pids for mask in list_affinities(pid, proc)]
        chosen = choose_cores(self._own.union(*masks), masks)
        if chosen != self._chosen:
            self._chosen = chosen
            for thread in list_threads(os.getpid(), proc):
                with contextlib.suppress(OSError):  # ended meanwhile, or a sandbox that lets nobody move
                    os.sched_setaffinity(thread, chosen)
        return chosen


def list_affinities(pid: int, proc: Path = Path("/proc")) -> set[Cores]:
    """Return the different affinities of a process's threads; empty when it is gone."""
    masks = set()
    for thread in list_threads(pid, proc):
        with contextlib.suppress(OSError):
            masks.add(frozenset(os.sched_getaffinity(thread)))
    return masks


def list_threads(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Return the thread ids of a process; empty when it is gone."""
    try:
        return [int(path.name) for path in (proc / str(pid) / "task").iterdir()]
    except OSError:
        return []
