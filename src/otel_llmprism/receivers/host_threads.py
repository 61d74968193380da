# /proc/PID/task -> what each of an engine's threads computed and how long it waited for a processor.
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from otel_llmprism.receivers.host_reading import HostReading, read_text

MAX_THREADS = 64  # of one process, the busiest; an engine with CUDA has a hundred idle ones


def read_threads(pids: Iterable[int], proc: Path = Path("/proc")) -> Iterator[HostReading]:
    """Yield cpu and run-queue seconds of the busiest threads of each process, by tid/name."""
    for pid in pids:
        threads = [seen for folder in _list_tasks(proc / str(pid) / "task") if (seen := _read_task(folder))]
        threads.sort(key=lambda thread: thread[1], reverse=True)
        for name, cpu_s, wait_s in threads[:MAX_THREADS]:
            yield HostReading("process.thread.cpu_s", name, cpu_s, pid)
            if wait_s is not None:
                yield HostReading("process.thread.wait_s", name, wait_s, pid)


def _list_tasks(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read_task(folder: Path) -> tuple[str, float, float | None] | None:
    head, _, tail = read_text(folder / "stat").rpartition(")")
    fields = tail.split()
    if len(fields) < 13:
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    # Time on a processor, time in its queue, turns; absent in kernels without statistics.
    schedule = read_text(folder / "schedstat").split()
    wait_s = int(schedule[1]) / 1e9 if len(schedule) >= 2 else None
    return f"{folder.name}/{head.partition('(')[2]}", cpu_s, wait_s
