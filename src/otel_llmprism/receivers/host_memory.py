# /proc/meminfo and /proc/vmstat -> how much memory is left and how hard the kernel looks for it.
from collections.abc import Iterator
from pathlib import Path

from otel_llmprism.receivers.host_reading import HostReading, read_numbers

_KIB = 1024
_SIZES = ("MemTotal", "MemAvailable", "Dirty", "Writeback", "SwapTotal", "SwapFree")
_EVENTS = ("pgmajfault", "pswpin", "pswpout", "allocstall_normal", "oom_kill")


def read_memory(proc: Path = Path("/proc")) -> Iterator[HostReading]:
    """Yield sizes in bytes and counts since boot."""
    sizes, events = read_numbers(proc / "meminfo"), read_numbers(proc / "vmstat")
    for key in _SIZES:
        if key in sizes:
            yield HostReading("system.memory_bytes", key, sizes[key] * _KIB)
    for key in _EVENTS:
        if key in events:
            yield HostReading("system.memory_events", key, events[key])
