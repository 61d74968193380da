# Who else watches the processes of an engine, and who would watch one started from here; what a running
# engine's own processes say of their hooks. Reads /proc and asks control sockets.
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from otel_llmprism.cli.doctor_checks.report import Report
from otel_llmprism.cli.engine_control import EngineProcess, NotInstrumentedError, find_engine
from otel_llmprism.cli.process_tree import ProcessEntry, read_process_environment, read_processes
from otel_llmprism.config.errors import ConfigError
from otel_llmprism.instrumentation.coexistence import ProcessView, find_neighbours, is_out_of_reach
from otel_llmprism.native.control_socket import ControlError

_PROC = Path("/proc")


def check_here() -> Iterator[Report]:
    """Who would share a process that is started from this shell."""
    if sys.flags.ignore_environment:
        mend = "start the engine without -E and -I, or rely on its plugin entry point"
        yield Report("note", "Python", "this one reads no environment", mend)
    view = ProcessView(os.environ, (), list_parents(os.getpid(), read_processes()))
    for neighbour in find_neighbours(view):
        yield Report("note", neighbour.name, f"{neighbour.evidence}: {neighbour.rule}", neighbour.mend)


def check_engine(pid: int) -> Iterator[Report]:
    """Look at a process and those below it from outside, then ask those that are instrumented."""
    processes = read_processes()
    if pid not in processes:
        yield Report("fail", f"process {pid}", "is not there", "`pgrep -f vllm` lists those of an engine")
        return
    top = read_view(pid, processes)
    for neighbour in find_neighbours(top):
        yield Report(
            "note", f"{pid} {neighbour.name}", f"{neighbour.evidence}: {neighbour.rule}", neighbour.mend
        )
    for child in list_children(pid, processes):
        if is_out_of_reach(read_view(child, processes), top):
            says = "lost the PYTHONPATH of auto-instrumentation"
            mend = (
                "pass PYTHONPATH and OTEL_* on to it; vLLM's and SGLang's plugin entry points reach it anyhow"
            )
            yield Report("note", f"process {child}", says, mend)
    try:
        yield from (report for member in find_engine(pid) for report in judge_member(member))
    except (NotInstrumentedError, ControlError, ConfigError) as error:
        yield Report("note", f"process {pid}", str(error))


def judge_member(member: EngineProcess) -> Iterator[Report]:
    """What one instrumented process says of itself."""
    status, what = member.status, f"process {member.pid}"
    dropped = int(status.get("dropped", 0))
    says = f"mode {status.get('mode', '?')}, {dropped} records dropped"
    mend = "set OTEL_LLMPRISM_RING_SLOTS higher" if dropped else ""
    yield Report("note" if dropped else "ok", what, says, mend)
    for hook in status.get("hooks", ()):
        if hook.get("off") in {"budget", "failed"}:
            yield Report("note", what, f"the hook {hook['name']} switched itself off: {hook['off']}")
    if absent := status.get("absent_hooks"):
        yield Report("note", what, f"no place for {', '.join(absent)}", "a newer otel-llmprism may know them")
    for found in status.get("neighbours", ()):
        yield Report("note", f"{member.pid} {found['name']}", f"{found['evidence']}: {found['rule']}")


def read_view(pid: int, processes: dict[int, ProcessEntry]) -> ProcessView:
    """Return what /proc shows of a process; parts that may not be read are empty."""
    return ProcessView(
        read_process_environment(pid),
        _read_words(pid),
        list_parents(pid, processes),
        _list_libraries(pid),
    )


def list_parents(pid: int, processes: dict[int, ProcessEntry]) -> list[str]:
    """Return the names of those who started the process, nearest first."""
    names, here = [], pid
    while here in processes and (here := processes[here].parent) > 1:
        names.append(_read(here, "comm").decode("utf-8", "replace").strip())
    return names


def list_children(pid: int, processes: dict[int, ProcessEntry]) -> list[int]:
    """Return the Python processes below this one."""
    found, left = [], [pid]
    while left:
        here = left.pop()
        below = [entry.pid for entry in processes.values() if entry.parent == here]
        left += below
        found += [child for child in below if "python" in "".join(_read_words(child)[:1])]
    return sorted(found)


def _read_words(pid: int) -> list[str]:
    return [word.decode("utf-8", "replace") for word in _read(pid, "cmdline").split(b"\0") if word]


def _list_libraries(pid: int) -> list[str]:
    lines = _read(pid, "maps").decode("utf-8", "replace").splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in lines if "/" in line})


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
