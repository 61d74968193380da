# What a running engine's processes hold and spent, read from /proc and the rings; changes nothing.
import os
from collections.abc import Sequence
from pathlib import Path

from otel_llmprism.testing.engine_server import EXPORTER, EngineServer

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_ring_mib(server: EngineServer) -> float:
    """Return what the engine's processes map of rings, while the server lives."""
    return (
        sum(read_ring_kib(pid) for pid, command in server.list_processes().items() if EXPORTER not in command)
        / 1024
    )


def read_ring_kib(pid: int) -> int:
    """Return what one process maps of rings."""
    ring, is_ring = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace").splitlines():
        word, _, rest = line.partition(" ")
        if not word.endswith(":"):
            is_ring = line.rstrip().endswith(".ring")
        elif word == "Rss:" and is_ring:
            ring += int(rest.split()[0])
    return ring


def read_cpu_s(pids: Sequence[int]) -> float:
    """Return user + system time of the processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S
