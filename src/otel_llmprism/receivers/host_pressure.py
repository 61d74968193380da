# /proc/pressure (or a cgroup's *.pressure files) -> how long tasks were stalled for want of a resource.
from collections.abc import Iterator
from pathlib import Path

from otel_llmprism.receivers.host_reading import HostReading, read_text

_RESOURCES = ("cpu", "memory", "io")


def read_pressure(folder: Path = Path("/proc/pressure"), suffix: str = "") -> Iterator[HostReading]:
    """Yield stalled seconds since boot, `some` and `full`, for each resource the kernel tells of."""
    for resource in _RESOURCES:
        for line in read_text(folder / f"{resource}{suffix}").splitlines():
            share, *fields = line.split()
            totals = [field.removeprefix("total=") for field in fields if field.startswith("total=")]
            if totals and totals[0].isdecimal():
                yield HostReading("system.pressure_s", f"{resource}/{share}", int(totals[0]) / 1e6)
