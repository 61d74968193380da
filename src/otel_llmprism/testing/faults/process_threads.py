# What a process is made of and what it computes, from /proc: threads, descendants, CPU time.
import os
from pathlib import Path

_PARENT, _USER, _SYSTEM = 1, 11, 12  # in /proc/PID/stat behind the name: proc_pid_stat(5) less 3


def list_threads(pid: int) -> list[int]:
    """Return the thread ids; none once it is gone."""
    try:
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def list_descendants(pid: int) -> list[int]:
    """Return the pid and those of all that descend from it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if fields := _read_stat(int(path.name)):
            children.setdefault(int(fields[_PARENT]), []).append(int(path.name))
    found = [pid]
    for parent in found:
        found += children.get(parent, ())
    return found


def read_cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used; 0 once it is gone."""
    fields = _read_stat(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def read_command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _read_stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []
