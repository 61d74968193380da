# /proc/PID/stat and status -> what each of an engine's processes computed, holds in memory and faulted in.
# Never smaps: it would hold the process's memory map while it counts.
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from otel_llmprism.receivers.host_reading import HostReading, read_numbers, read_text

_KIB = 1024
_SIZES = ("RssAnon", "RssFile", "RssShmem", "VmSwap")
_SWITCHES = {"voluntary": "voluntary_ctxt_switches", "nonvoluntary": "nonvoluntary_ctxt_switches"}
# Places in /proc/PID/stat behind the name, which may hold spaces and brackets: proc_pid_stat(5) less 3.
_MINOR_FAULTS, _MAJOR_FAULTS, _USER, _SYSTEM, _THREADS = 7, 9, 11, 12, 17


def read_processes(pids: Iterable[int], proc: Path = Path("/proc")) -> Iterator[HostReading]:
    """Yield cpu seconds, page faults, context switches, sizes in bytes and threads of each process."""
    for pid in pids:
        yield from _read_stat(pid, proc / str(pid) / "stat")
        yield from _read_status(pid, proc / str(pid) / "status")


def _read_stat(pid: int, path: Path) -> Iterator[HostReading]:
    fields = read_text(path).rpartition(")")[2].split()
    if len(fields) <= _THREADS:
        return
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    yield HostReading("process.cpu_s", "user", int(fields[_USER]) / ticks_per_s, pid)
    yield HostReading("process.cpu_s", "system", int(fields[_SYSTEM]) / ticks_per_s, pid)
    yield HostReading("process.page_faults", "minor", int(fields[_MINOR_FAULTS]), pid)
    yield HostReading("process.page_faults", "major", int(fields[_MAJOR_FAULTS]), pid)
    yield HostReading("process.threads", "", int(fields[_THREADS]), pid)


def _read_status(pid: int, path: Path) -> Iterator[HostReading]:
    numbers = read_numbers(path)
    for key in _SIZES:
        if key in numbers:
            yield HostReading("process.memory_bytes", key, numbers[key] * _KIB, pid)
    # Of the main thread alone: the kernel keeps them by thread.
    for name, key in _SWITCHES.items():
        if key in numbers:
            yield HostReading("process.main_thread.context_switches", name, numbers[key], pid)
