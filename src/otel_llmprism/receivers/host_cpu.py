# /proc/stat and /proc/loadavg -> what the host's processors did since boot.
import os
from collections.abc import Iterator
from pathlib import Path

from otel_llmprism.receivers.host_reading import HostReading, read_numbers, read_text

_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def read_cpu(proc: Path = Path("/proc")) -> Iterator[HostReading]:
    """Yield seconds by state over all cpus, context switches, and how many tasks can run."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    fields = read_text(proc / "stat").partition("\n")[0].split()
    if fields[:1] == ["cpu"]:
        for state, ticks in zip(_STATES, fields[1:], strict=False):
            yield HostReading("system.cpu.time_s", state, int(ticks) / ticks_per_s)
    numbers = read_numbers(proc / "stat")
    for name, key in (("system.context_switches", "ctxt"), ("system.tasks_running", "procs_running")):
        if key in numbers:
            yield HostReading(name, "", numbers[key])
