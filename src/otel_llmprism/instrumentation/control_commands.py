# What the control socket's commands mean in this process: one decoded request in, one answer out. Knows
# the run and its hooks, and no socket. Called by the control thread.
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from otel_llmprism.instrumentation import process_run
from otel_llmprism.instrumentation.coexistence import (
    INJECTION_LIBRARY,
    ProcessView,
    find_here,
    find_neighbours,
)
from otel_llmprism.instrumentation.guard import HookState
from otel_llmprism.instrumentation.profiler_state import profiler_state
from otel_llmprism.native.control_socket import MAX_DEEP_STEPS, PROTOCOL_VERSION
from otel_llmprism.native.ring_codes import Mode
from otel_llmprism.native.run_folder import RUN_FILE, check_private

Answer = dict[str, object]
Request = Mapping[str, Any]


def answer_request(request: object) -> Answer:
    """Do what a request asks and say how it is now; `ok` False and why when it cannot be."""
    if not isinstance(request, dict):
        return refuse("this is no JSON object; send one a line")
    if request.get("version", PROTOCOL_VERSION) != PROTOCOL_VERSION:
        return refuse(f"this process speaks version {PROTOCOL_VERSION}: use the otel-llmprism it runs with")
    command = request.get("command")
    act = COMMANDS.get(command) if isinstance(command, str) else None
    if act is None:
        return refuse(f"no such command; there are {', '.join(COMMANDS)}")
    return act(request)


def refuse(why: str) -> Answer:
    return {"ok": False, "error": why}


def tell_status(_request: Request) -> Answer:
    run = process_run.own_run()
    mode = run.mode if run is not None else Mode.OFF
    answer: Answer = {
        "ok": True,
        "pid": os.getpid(),
        "mode": mode.name.lower(),
        "can_begin": process_run.can_begin(),
        "absent_hooks": process_run.list_absent_hooks(),
        "neighbours": [neighbour._asdict() for neighbour in find_here()],
    }
    if run is not None and run.description is not None:
        answer |= {
            "engine": run.description.engine_id,
            "engine_name": run.description.engine_name,
            "run": run.description.run,
            "run_folder": process_run.joined_folder(),
            "exporter_pid": run.exporter_pid,
            "dropped": run.writer.dropped if run.writer is not None else 0,
            "schedules": run.steps.hook.calls > 0,  # the others' deep_left is never counted down
            "deep_left": run.keeper.deep_left,
            "hooks": [describe_hook(hook) for hook in run.hooks],
        }
    return answer | describe_neighbours()


def describe_hook(hook: HookState) -> Answer:
    """Return what a person wants to know of a hook; times are of a sample of its latest calls."""
    kept_ns = hook.list_kept_ns()
    reason = hook.off_reason.name.lower() if hook.off_reason is not None else ""
    return {
        "name": hook.name,
        "calls": hook.calls,
        "failures": hook.failures,
        "p50_us": round(kept_ns[len(kept_ns) // 2] / 1e3, 1) if kept_ns else None,
        "p99_us": round(kept_ns[len(kept_ns) * 99 // 100] / 1e3, 1) if kept_ns else None,
        "off": reason or ("unwanted" if hook.is_unwanted else "asleep" if hook.is_off else None),
    }


def describe_neighbours() -> Answer:
    """Return who else measures or steers here, without importing or loading anything."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        # Searched in one piece: to walk through an engine's thousands of lines would hold up its steps.
        libraries = maps.splitlines() if INJECTION_LIBRARY in maps else ()
        view = ProcessView(dict(os.environ), sys.orig_argv, libraries=libraries)
        found = [*find_neighbours(view), *find_here()]
    except Exception:  # noqa: BLE001  a hint, worth no trouble
        return {}
    return {
        "torch_profiler": "running" if profiler_state().is_running else "not running",
        "cupti": "loaded" if "libcupti.so" in maps else "not loaded",
        "neighbours": [{"name": n.name, "evidence": n.evidence[:200], "rule": n.rule} for n in found],
    }


def set_sentinel(request: Request) -> Answer:
    folder = request.get("run_folder", "")
    if not isinstance(folder, str) or (folder and not _is_run_folder(folder)):
        return refuse("run_folder is no run folder of this user")
    run = process_run.wake_run(Mode.SENTINEL, folder)
    if run is None:
        return refuse("this process begins no run and was named none to join")
    return tell_status(request)


def set_off(request: Request) -> Answer:
    process_run.wake_run(Mode.OFF)
    return tell_status(request)


def dive_deep(request: Request) -> Answer:
    steps = request.get("steps")
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= MAX_DEEP_STEPS:
        return refuse(f"steps must be a whole number from 1 to {MAX_DEEP_STEPS}")
    run = process_run.own_run()
    if run is None or not run.request_deep_steps(steps):
        return refuse("this process is asleep; wake it with sentinel first")
    return tell_status(request)


def _is_run_folder(name: str) -> bool:
    folder = Path(name)
    try:
        check_private(folder)
        check_private(folder.parent)
    except Exception:  # noqa: BLE001  whatever it is, it is none
        return False
    return (folder / RUN_FILE).is_file()


COMMANDS: Mapping[str, Callable[[Request], Answer]] = {
    "status": tell_status,
    "sentinel": set_sentinel,
    "off": set_off,
    "deep-dive": dive_deep,
}
