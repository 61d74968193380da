# One engine as its control sockets show it: any of its processes in, the same command to all of them. The
# order matters only when an engine is woken: who launched it begins the run, those below join it.
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_llmprism.cli.process_tree import (
    check_process,
    find_process_sockets,
    list_ancestors,
    list_relatives,
    read_processes,
)
from otel_llmprism.native.control_socket import ControlError, ask_process

Answer = dict[str, Any]


class NotInstrumentedError(Exception):
    """No process round this one has a control socket; the text says how to get one."""


@dataclass(frozen=True, slots=True)
class EngineProcess:
    pid: int
    socket: Path
    status: Answer
    ancestors: tuple[int, ...] = ()  # the nearest first


def find_engine(pid: int) -> list[EngineProcess]:
    """Return the engine's processes, parents first; ConfigError or NotInstrumentedError."""
    processes = read_processes()
    check_process(pid, processes)
    sockets = find_process_sockets(pid, processes)
    asked = {other: _ask_status(path) for other, path in sockets.items()}
    statuses = {other: status for other, status in asked.items() if status is not None}
    relatives = [other for other in list_relatives(pid, processes, sockets) if other in statuses]
    if not relatives:
        raise NotInstrumentedError(
            f"process {pid} and those below it are not instrumented: start the engine under "
            f"opentelemetry-instrument (OTEL_LLMPRISM_MODE=off keeps it asleep), or try "
            f"`otel-llmprism attach {pid}`"
        )
    chosen = relatives
    # A process in a run stands for that run, one without, such as a launcher, for all that it launched.
    if (own_run := statuses.get(pid, {}).get("run")) is not None:
        chosen = [other for other in relatives if statuses[other].get("run") in {own_run, None}]
        cousins = [other for other in sorted(statuses) if other not in relatives]
        chosen += [other for other in cousins if statuses[other].get("run") == own_run]
    return [
        EngineProcess(other, sockets[other], statuses[other], tuple(list_ancestors(other, processes)))
        for other in chosen
    ]


def command_engine(engine: list[EngineProcess], request: Mapping[str, object]) -> dict[int, Answer]:
    """Send the request to every process; return the answers, those that failed as {"ok": False, "error"}."""
    if request.get("command") == "sentinel":
        return wake_engine(engine)
    return {process.pid: _ask(process, request) for process in engine}


def wake_engine(engine: list[EngineProcess]) -> dict[int, Answer]:
    """Let each process that launched an engine begin its run, unless it has one, and those below join it.

    A replica whose launcher begins none begins its own, since replicas are engines of their own.
    """
    folders = {p.pid: str(p.status["run_folder"]) for p in engine if p.status.get("run_folder")}
    answers: dict[int, Answer] = {}
    for process in engine:  # parents come first
        folder = _find_run(process, engine, folders)
        if folder or process.status.get("can_begin"):
            answers[process.pid] = _wake(process, folder)
            if begun := answers[process.pid].get("run_folder"):
                folders[process.pid] = str(begun)
    runs = set(folders.values())
    only = next(iter(runs)) if len(runs) == 1 else ""
    for process in engine:  # those that begin none, such as a rank beside the one that began
        if process.pid not in answers:
            answers[process.pid] = _wake(process, _find_run(process, engine, folders) or only)
    return {process.pid: answers[process.pid] for process in engine}


def wake_process(pid: int, engine: list[EngineProcess]) -> Answer:
    """Wake one of the processes alone: it joins the run that it belongs to, or begins one."""
    process = next(process for process in engine if process.pid == pid)
    folders = {p.pid: str(p.status["run_folder"]) for p in engine if p.status.get("run_folder")}
    return _wake(process, _find_run(process, engine, folders))


def _find_run(process: EngineProcess, engine: list[EngineProcess], folders: Mapping[int, str]) -> str:
    """Return the run that a process belongs to: its own, the nearest above it, or the only one below it."""
    if found := next((folders[pid] for pid in (process.pid, *process.ancestors) if pid in folders), ""):
        return found
    below = {folders[p.pid] for p in engine if process.pid in p.ancestors and p.pid in folders}
    return below.pop() if len(below) == 1 else ""


def _wake(process: EngineProcess, folder: str) -> Answer:
    return _ask(process, {"command": "sentinel", "run_folder": folder})


def _ask(process: EngineProcess, request: Mapping[str, object]) -> Answer:
    try:
        return ask_process(process.socket, request)
    except ControlError as error:
        return {"ok": False, "pid": process.pid, "error": str(error)}


def _ask_status(path: Path) -> Answer | None:
    try:
        return ask_process(path, {"command": "status"})
    except ControlError:
        return None  # it ended, or belongs to somebody else
