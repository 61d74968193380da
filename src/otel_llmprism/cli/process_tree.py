# Which processes belong together: a pid in, those round it and their sockets out, read from /proc. Looks
# only.
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.native.control_socket import find_sockets, list_socket_roots

_PROC = Path("/proc")
_VARIABLES = ("OTEL_LLMPRISM_RUNTIME_DIR", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    pid: int
    parent: int
    uid: int


def read_processes() -> dict[int, ProcessEntry]:
    """Return every process that /proc shows."""
    found = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            uid = folder.stat().st_uid
        except OSError:
            continue  # it ended while we looked
        pid = int(folder.name)
        found[pid] = ProcessEntry(pid, int(stat.rpartition(")")[2].split()[1]), uid)
    return found


def list_relatives(pid: int, processes: Mapping[int, ProcessEntry], sockets: Mapping[int, Path]) -> list[int]:
    """Return the tree below the highest instrumented ancestor, or below the process itself; parents first.

    An ancestor without a socket, such as a shell, may have started other engines as well.
    """
    instrumented = [other for other in list_ancestors(pid, processes) if other in sockets]
    return _list_descendants(instrumented[-1] if instrumented else pid, processes)


def list_ancestors(pid: int, processes: Mapping[int, ProcessEntry]) -> list[int]:
    """Return a process's ancestors, the nearest first."""
    found: list[int] = []
    here = processes[pid].parent if pid in processes else 0
    while here in processes and here not in found:
        found.append(here)
        here = processes[here].parent
    return found


def find_process_sockets(pid: int, processes: Mapping[int, ProcessEntry]) -> dict[int, Path]:
    """Return the sockets in all folders where this process or we would put one, by pid."""
    found: dict[int, Path] = {}
    for root in _list_roots(pid, processes[pid].uid):
        for other, path in find_sockets(root).items():
            found.setdefault(other, path)
    return found


def check_process(pid: int, processes: Mapping[int, ProcessEntry]) -> None:
    """Raise ConfigError, with the mend, unless the process is there and ours to ask."""
    if pid not in processes:
        raise ConfigError(f"there is no process {pid}; `pgrep -f vllm` lists those of an engine")
    if os.geteuid() not in {0, processes[pid].uid}:
        raise ConfigError(
            f"process {pid} belongs to uid {processes[pid].uid}: run this as that user or as root"
        )


def read_process_environment(pid: int) -> dict[str, str]:
    """Return what the process was started with; empty when it may not be read."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in raw.split(b"\0"))
    return {name: value for name, _, value in pairs if name}


def _list_roots(pid: int, uid: int) -> list[Path]:
    own = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    roots = [*list_socket_roots(read_process_environment(pid), uid), *list_socket_roots(own, uid)]
    return [*roots, *list_socket_roots({}, uid)]


def _list_descendants(pid: int, processes: Mapping[int, ProcessEntry]) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in processes.values():
        children.setdefault(entry.parent, []).append(entry.pid)
    order, left = [], [pid]
    while left:
        here = left.pop(0)
        order.append(here)
        left += sorted(children.get(here, []))
    return order
