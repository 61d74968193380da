# /proc/PID/task -> what each of an engine's busy threads computed and how long it waited for a processor.
# Reading one thread costs 80 us and an engine with CUDA has hundreds of idle ones: all of a process are
# read every tenth time only, the processes taking turns; else those that were busy then.
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from otel_llmprism.receivers.host_reading import HostReading, read_text

MAX_THREADS = 16  # of one process, the busiest
SCAN_EVERY = 10
_SHOWN_STATES = ("R", "D")  # runs or could run; waits for a disk and cannot be interrupted


class _Thread(NamedTuple):
    tid: int
    name: str
    state: str
    cpu_s: float
    wait_s: float | None


class ThreadSampler:
    """Remembers which threads are busy; call `read` about once a second."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._watched: dict[int, list[int]] = {}
        self._cpu_s: dict[int, dict[int, float]] = {}  # at the last scan
        self._told: dict[int, _Thread] = {}
        self._turn = 0

    def read(self, pids: Sequence[int]) -> Iterator[HostReading]:
        """Yield cpu and run-queue seconds by tid/name, and how many of these run or wait for a disk.

        A thread that did nothing since it was last told of is left out: most of an engine's are idle.
        """
        self._forget(pids)
        for place, pid in enumerate(pids):
            if pid not in self._watched or (self._turn + place) % SCAN_EVERY == 0:
                threads = self._scan(pid)
            else:
                threads = self._read_tasks(pid, self._watched[pid])
            for thread in filter(self._has_moved, threads):
                name = f"{thread.tid}/{thread.name}"
                yield HostReading("process.thread.cpu_s", name, thread.cpu_s, pid)
                if thread.wait_s is not None:
                    yield HostReading("process.thread.wait_s", name, thread.wait_s, pid)
            if threads:
                states = Counter(thread.state for thread in threads)
                for state in _SHOWN_STATES:
                    yield HostReading("process.threads_in_state", state, states[state], pid)
        self._turn += 1

    def _has_moved(self, thread: _Thread) -> bool:
        before = self._told.get(thread.tid)
        self._told[thread.tid] = thread
        return before is None or (before.cpu_s, before.wait_s) != (thread.cpu_s, thread.wait_s)

    def _scan(self, pid: int) -> list[_Thread]:
        threads = self._read_tasks(pid, _list_tasks(self._proc / str(pid) / "task"))
        before = self._cpu_s.get(pid, {})
        threads.sort(key=lambda thread: thread.cpu_s - before.get(thread.tid, 0.0), reverse=True)
        self._cpu_s[pid] = {thread.tid: thread.cpu_s for thread in threads}
        self._watched[pid] = [thread.tid for thread in threads[:MAX_THREADS]]
        return threads[:MAX_THREADS]

    def _read_tasks(self, pid: int, tids: Sequence[int]) -> list[_Thread]:
        folder = self._proc / str(pid) / "task"
        return [thread for tid in tids if (thread := _read_task(folder / str(tid))) is not None]

    def _forget(self, pids: Sequence[int]) -> None:
        for pid in self._watched.keys() - set(pids):
            del self._watched[pid], self._cpu_s[pid]
        living = {tid for threads in self._cpu_s.values() for tid in threads}
        self._told = {tid: thread for tid, thread in self._told.items() if tid in living}


def _list_tasks(folder: Path) -> list[int]:
    try:
        return [int(path.name) for path in folder.iterdir()]
    except OSError:
        return []


def _read_task(folder: Path) -> _Thread | None:
    head, _, tail = read_text(folder / "stat").rpartition(")")
    fields = tail.split()
    if len(fields) < 13:
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    # Time on a processor, time in its queue, turns; absent in kernels without statistics.
    schedule = read_text(folder / "schedstat").split()
    wait_s = int(schedule[1]) / 1e9 if len(schedule) >= 2 else None
    return _Thread(int(folder.name), head.partition("(")[2], fields[0], cpu_s, wait_s)
