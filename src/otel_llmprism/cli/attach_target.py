# The process to attach to, as /proc shows it: which Python, whose, in which container, and whether it lets
# others in. Looks only.
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from otel_llmprism.cli.process_tree import check_process, read_process_environment, read_processes
from otel_llmprism.config.errors import ConfigError

OLDEST = (3, 11)
REMOTE_EXEC = (3, 14)
_VERSIONED = re.compile(r"/(?:lib)?python(3)\.([0-9]{1,2})(?![0-9])")
_DISABLED_OPTION = "disable-remote-debug"
_INSTEAD = (
    "restart the engine under opentelemetry-instrument (with OTEL_LLMPRISM_MODE=off it sleeps until "
    "`otel-llmprism control` wakes it)"
)


@dataclass(frozen=True, slots=True)
class Target:
    pid: int
    uid: int
    version: tuple[int, int] | None  # None: no Python, or none that shows its version
    has_remote_debug: bool


def look_at_target(pid: int, proc: Path = Path("/proc")) -> Target:
    """Return what the process is; ConfigError, with the mend, when it cannot be attached to at all."""
    if pid == os.getpid():
        raise ConfigError("that is this command itself")
    processes = read_processes()
    check_process(pid, processes)
    _check_container(pid, proc)
    return Target(pid, processes[pid].uid, find_python_version(pid, proc), has_remote_debug(pid, proc))


def find_python_version(pid: int, proc: Path = Path("/proc")) -> tuple[int, int] | None:
    """Return (3, minor) of the Python that a process runs, by its program and the files it has mapped."""
    folder = proc / str(pid)
    try:
        program = str((folder / "exe").readlink())
        mapped = (folder / "maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = _VERSIONED.search(program) or _VERSIONED.search(mapped)
    return (int(match[1]), int(match[2])) if match else None


def has_remote_debug(pid: int, proc: Path = Path("/proc")) -> bool:
    """Tell whether the process was started without switching remote debugging off."""
    if read_process_environment(pid).get("PYTHON_DISABLE_REMOTE_DEBUG"):
        return False
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return True
    return not any(_DISABLED_OPTION.encode() in word.replace(b"_", b"-") for word in words)


def refuse(target: Target, *, allows_ptrace: bool, running: tuple[int, int] = sys.version_info[:2]) -> str:
    """Say why the process cannot be attached to in a sound way, and what can be done; empty when it can."""
    if target.version is None:
        return f"process {target.pid} runs no Python that we can see; {_INSTEAD}"
    shown = ".".join(map(str, target.version))
    if target.version < OLDEST:
        return f"process {target.pid} runs Python {shown}, we need 3.11 or later; {_INSTEAD}"
    if target.version >= REMOTE_EXEC:
        return _refuse_remote(target, shown, is_same=target.version == running)
    if allows_ptrace:
        return ""
    return (
        f"Python {shown} has no safe way in (3.14 has): {_INSTEAD}, or try this one process with "
        f"--allow-ptrace, which stops it for up to a second"
    )


def _refuse_remote(target: Target, shown: str, *, is_same: bool) -> str:
    if not target.has_remote_debug:
        return f"process {target.pid} was started with remote debugging disabled; {_INSTEAD}"
    if not is_same:
        return f"run this with the same Python: python{shown} -m otel_llmprism attach {target.pid}"
    return ""


def _check_container(pid: int, proc: Path) -> None:
    try:
        is_same = (proc / str(pid) / "ns/mnt").readlink() == (proc / "self/ns/mnt").readlink()
    except OSError as error:
        raise ConfigError(
            f"process {pid} may not be looked at: {error.strerror}; run this as root"
        ) from error
    if not is_same:
        raise ConfigError(f"process {pid} sees other files, as in a container: run this command in there")
