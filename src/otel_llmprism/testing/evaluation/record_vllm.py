# A plan in, a recording of real vLLM out: serves a tiny model under a closed load, slows it from inside or
# from beside where the plan says so, and keeps what it left. Ends everything it started.
import json
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path

from otel_llmprism.testing.engine_client import MODULE
from otel_llmprism.testing.engine_load import LoadPlan, build_asks
from otel_llmprism.testing.engine_server import PLAIN, EngineServer
from otel_llmprism.testing.evaluation.injection import Clock, inject_all
from otel_llmprism.testing.evaluation.outside_faults import EngineHandle, build_after
from otel_llmprism.testing.evaluation.recording import Recording, describe_machine, name_recording
from otel_llmprism.testing.evaluation.run_plan import RunPlan
from otel_llmprism.testing.faults.control_groups import remove_stale_groups
from otel_llmprism.testing.faults.fault_ledger import FaultEntry, write_ledger
from otel_llmprism.testing.faults.vllm_delays import ORIGIN_SUFFIX, PATH_VARIABLE
from otel_llmprism.testing.mini_engine.fault_schedule import Place, write_schedule
from otel_llmprism.testing.programs import ProgramError, Programs

ENGINE = "vllm"
KINDS_OF_VLLM = ("none", "operator", "scheduler", "front_end", "cpu_burn", "cpu_quota")
_ASKS_PER_S = 60  # more than it answers
_MOST_ASKS = 60_000
_CORE = "VLLM::EngineCore"


def record_vllm(
    plan: RunPlan, cache: Path, python: Path, endpoint: str = "", *, is_fresh: bool = False
) -> Recording:
    """Return the recording of a plan, made now unless the cache has it."""
    folder = cache / name_recording(plan, ENGINE)
    if (folder / "recording.json").exists() and not is_fresh and not endpoint:
        return Recording(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    remove_stale_groups()
    machine, schedule = describe_machine(), folder / "schedule.jsonl"
    with Programs(folder) as programs:
        environment = {PATH_VARIABLE: str(schedule), "OTEL_SERVICE_NAME": "vllm"}
        server = EngineServer(python, folder, PLAIN, otlp_endpoint=endpoint, environment=environment)
        server.start(programs)
        clock = Clock(time.monotonic_ns())
        write_schedule(
            schedule, tuple(entry for entry in plan.list_entries() if entry.place is not Place.LOAD)
        )
        schedule.with_name(schedule.name + ORIGIN_SUFFIX).write_text(str(clock.origin_ns), encoding="utf-8")
        _start_load(plan, server, programs)
        faults = _strike(plan, clock, server)
        time.sleep(max(0.0, (clock.to_ns(plan.seconds) - time.monotonic_ns()) / 1e9))
        server.stop()
    write_ledger(folder / "faults.jsonl", faults)
    facts = {"origin_ns": clock.origin_ns, "machine": machine, "summary": {}, "plan": asdict(plan)}
    (folder / "recording.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return Recording(folder)


def _start_load(plan: RunPlan, server: EngineServer, programs: Programs) -> None:
    """Keep a few requests in flight, from one process, until it is ended with the server."""
    count = min(_MOST_ASKS, int(plan.seconds * _ASKS_PER_S))
    seed, concurrency = int(plan.words["seed"]), int(plan.words["prompt"]) // 12
    asks = build_asks(LoadPlan(count, seed, prompt_words=(16, 300), max_tokens=(8, 96)), plan.name)
    path = server.folder / "asks.json"
    path.write_text(json.dumps([asdict(ask) for ask in asks]), encoding="utf-8")
    words = [str(server.port), server.model, str(concurrency), str(path), str(server.folder / "answers.json")]
    programs.start(
        "client", [sys.executable, "-m", MODULE, *words], {"PYTHONPATH": str(Path(__file__).parents[3])}
    )


def _strike(plan: RunPlan, clock: Clock, server: EngineServer) -> list[FaultEntry]:
    cores = [pid for pid, command in server.list_processes().items() if _CORE in command]
    if not cores:
        raise ProgramError("vLLM has no process that computes")
    after = build_after({one.kind for one in plan.episodes}, EngineHandle(dict(enumerate(cores))))
    program = server.program
    try:
        for fault in after.values():
            fault.prepare()
        return inject_all(plan, clock, after, lambda: program is not None and program.process.poll() is None)
    finally:
        for fault in after.values():
            fault.close()
