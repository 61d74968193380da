# A plan in, a recording of the mini engine out: starts it, strikes it from outside where the plan says so,
# and keeps what it left. Ends everything it started.
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from otel_llmprism.testing.evaluation.injection import Clock, inject_all
from otel_llmprism.testing.evaluation.outside_faults import EngineHandle, build_after, build_before
from otel_llmprism.testing.evaluation.recording import Recording, describe_machine, name_recording
from otel_llmprism.testing.evaluation.run_plan import RunPlan
from otel_llmprism.testing.faults.control_groups import remove_stale_groups
from otel_llmprism.testing.faults.fault import Fault
from otel_llmprism.testing.faults.fault_ledger import FaultEntry, write_ledger
from otel_llmprism.testing.faults.link import LinkThrottle, remove_stale_links
from otel_llmprism.testing.faults.memory_squeeze import MemorySqueeze
from otel_llmprism.testing.mini_engine.fault_schedule import write_schedule
from otel_llmprism.testing.programs import Program, ProgramError, Programs, wait_until

ENGINE = "mini"
_TIDY_S, _DRAIN_S, _POLL_S = 60.0, 5.0, 0.1
_LONGEST_S = 3600.0
_ORIGIN = "origin"
_ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


def record_mini(
    plan: RunPlan,
    cache: Path,
    endpoint: str = "",
    *,
    is_fresh: bool = False,
    await_begin: Callable[[], None] | None = None,
) -> Recording:
    """Return the recording of a plan, made now unless the cache has it; UnavailableError where it cannot be.

    With an `endpoint` the engine ships to it as well, and what the cache has is not used. With `await_begin`
    the plan's second 0 is when that returns, and the engine is ended after the plan's seconds.
    """
    folder = cache / name_recording(plan, ENGINE)
    if (folder / "recording.json").exists() and not is_fresh and not endpoint:
        return Recording(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    remove_stale_groups()
    remove_stale_links()
    before = build_before({one.kind for one in plan.episodes})
    try:
        for fault in before.values():
            fault.prepare()
        _run(plan, folder, endpoint, before, await_begin)
    finally:
        for fault in before.values():
            fault.close()
    return Recording(folder)


def _run(
    plan: RunPlan,
    folder: Path,
    endpoint: str,
    before: Mapping[str, Fault],
    await_begin: Callable[[], None] | None,
) -> None:
    machine = describe_machine()
    write_schedule(folder / "schedule.jsonl", plan.list_entries())
    clock = Clock(time.monotonic_ns())
    with Programs(folder) as programs:
        engine = programs.start(
            "engine",
            build_command(plan, folder, None if await_begin else clock, before),
            build_environment(folder, endpoint, plan.engine_id),
        )
        pids = wait_until(lambda: _read_pids(engine), "the engine does not say its pids")
        if await_begin is not None:
            await_begin()
            clock = _begin_now(folder)
        faults = _strike(plan, clock, engine, before, EngineHandle(pids))
        # What overload left is not waited for.
        end_ns = clock.to_ns(plan.seconds + (_DRAIN_S if await_begin is None else 0.0))
        while engine.process.poll() is None and time.monotonic_ns() < end_ns:
            time.sleep(_POLL_S)
        status = engine.stop(_TIDY_S)
        if status:
            raise ProgramError(f"the engine ended with {status}:\n{engine.read_log()[-2000:]}")
        summary = json.loads(engine.read_log().strip().splitlines()[-1])
        wait_until(lambda: not any((folder / "runtime").glob("*/run.json")), "the exporter does not end")
    write_ledger(folder / "faults.jsonl", faults)
    shutil.rmtree(folder / "runtime", ignore_errors=True)
    facts = {"origin_ns": clock.origin_ns, "machine": machine, "summary": summary, "plan": asdict(plan)}
    (folder / "recording.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def build_command(plan: RunPlan, folder: Path, clock: Clock | None, before: Mapping[str, Fault]) -> list[str]:
    """Return what starts the engine of a plan, inside what was prepared for it."""
    seconds = plan.seconds if clock is not None else _LONGEST_S
    command = [sys.executable, "-m", "otel_llmprism.testing.mini_engine", "--seconds", str(seconds)]
    for name, value in plan.words.items():
        command += [f"--{name}", f"{value:.12g}"]
    command += ["--log-tokens", str(folder / "book.jsonl"), "--faults", str(folder / "schedule.jsonl")]
    command += ["--fault-log", str(folder / "injected.jsonl")]
    if clock is not None:
        command += ["--fault-origin-ns", str(clock.origin_ns)]
    else:
        command += ["--fault-origin-file", str(folder / _ORIGIN)]
    link, memory = before.get("link"), before.get("memory")
    if isinstance(link, LinkThrottle):
        command += ["--rank-address", link.address, "--rank-namespace", link.namespace]
    if isinstance(memory, MemorySqueeze):
        return ["/bin/sh", "-c", _ENTER, str(memory.find_folder()), *command]
    return command


def build_environment(folder: Path, endpoint: str, engine_id: str = "") -> dict[str, str]:
    """Return where the engine's telemetry goes: to its folder, and to `endpoint` where there is one."""
    environment = {
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "OTEL_LLMPRISM_MODE": "sentinel",
        "OTEL_LLMPRISM_RUNTIME_DIR": str(folder / "runtime"),
        "OTEL_LLMPRISM_LEDGER_DIR": str(folder / "ledger"),
        "OTEL_SERVICE_NAME": "mini-engine",
    }
    if engine_id:
        environment["OTEL_LLMPRISM_ENGINE_ID"] = engine_id
    if endpoint:
        return environment | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    signals = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER")
    return environment | dict.fromkeys(signals, "none")


def _begin_now(folder: Path) -> Clock:
    """Tell the engine that the plan begins now."""
    clock = Clock(time.monotonic_ns())
    whole = folder / f"{_ORIGIN}.new"
    whole.write_text(str(clock.origin_ns), encoding="utf-8")
    whole.rename(folder / _ORIGIN)
    return clock


def _strike(
    plan: RunPlan, clock: Clock, engine: Program, before: Mapping[str, Fault], handle: EngineHandle
) -> list[FaultEntry]:
    after = build_after({one.kind for one in plan.episodes}, handle)
    try:
        for fault in after.values():
            fault.prepare()
        return inject_all(plan, clock, {**before, **after}, lambda: engine.process.poll() is None)
    finally:
        for fault in after.values():
            fault.close()


def _read_pids(engine: Program) -> dict[int, int]:
    for line in engine.read_log().splitlines():
        if line.startswith('{"rank_pids"'):
            return {int(rank): int(pid) for rank, pid in json.loads(line)["rank_pids"].items()}
    if engine.process.poll() is not None:
        raise ProgramError(f"the engine ended with {engine.process.returncode}:\n{engine.read_log()}")
    return {}
