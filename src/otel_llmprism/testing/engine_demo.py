# Real vLLM under load for a while, as a program: prints one JSON line, what the engine itself says it did.
# Where it sends its telemetry is in its environment.
import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from otel_llmprism.testing.engine_load import LoadPlan, build_asks, send_load
from otel_llmprism.testing.engine_server import PLAIN, EngineServer
from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.faults.cpu_burners import CpuBurners
from otel_llmprism.testing.programs import ProgramError, Programs

ROUND = LoadPlan(count=48, seed=0, prompt_words=(16, 300), max_tokens=(8, 96), shares_prefix=0.3)
CONCURRENCY = 12
BURN_INTENSITY = 3.0
HOLD_S = 30.0  # of the fault


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve and load for the given time; 0 when every request was answered."""
    parser = argparse.ArgumentParser(
        prog="python -m otel_llmprism.testing.engine_demo",
        description="vLLM with a tiny model of random weights, under load.",
        epilog="example: python -m otel_llmprism.testing.engine_demo --seconds 20 --folder /var/tmp/demo",
    )
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the Python that has vLLM")
    parser.add_argument("--folder", type=Path, required=True, help="for model, logs and ledger")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to load (default %(default)s)")
    parser.add_argument("--fault", choices=("none", "cpu"), default="none", help="what to suffer")
    parser.add_argument("--begin", type=float, default=60.0, help="second of the load at which it begins")
    parser.add_argument("--trigger", type=Path, help="a file: the fault begins when it appears, if earlier")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)  # so that what was started is ended
    options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        print(json.dumps(run_engine(options)), flush=True)  # noqa: T201  the program's answer
    except ProgramError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def run_engine(options: argparse.Namespace) -> dict[str, object]:
    """Start vLLM, load it, burn beside it if asked to, end it; return what its own book says."""
    python, folder, seconds = options.python, options.folder, options.seconds
    kind, burners = KINDS["cpu_burn"], CpuBurners(sorted(os.sched_getaffinity(0)))
    faults: list[dict[str, object]] = []
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    service = {"OTEL_SERVICE_NAME": os.environ.get("OTEL_SERVICE_NAME", "vllm")}
    with Programs(folder) as programs:
        server = EngineServer(python, folder, PLAIN, otlp_endpoint=endpoint, environment=service)
        server.start(programs)
        sys.stderr.write("vLLM serves; the load begins\n")
        requests, began_s = 0, time.monotonic()
        try:
            while time.monotonic() < began_s + seconds:
                is_time = time.monotonic() >= began_s + options.begin
                is_time = is_time or (options.trigger is not None and options.trigger.exists())
                if options.fault == "cpu" and not faults and is_time:
                    seconds = min(seconds, time.monotonic() - began_s + HOLD_S)
                    burners.start(BURN_INTENSITY)
                    faults.append({"kind": kind.name, "accepted": kind.accepted, "subjects": kind.subjects})
                asks = build_asks(replace(ROUND, seed=requests), f"demo-{requests}")
                send_load(programs, server, asks, concurrency=CONCURRENCY)
                requests += len(asks)
        finally:
            burners.stop()
        server.stop()
    return {"engine": "vllm", "requests": requests, "steps": count_steps(server), "faults": faults}


def count_steps(server: EngineServer) -> int:
    """Return how many schedule calls gave tokens to a request, by the engine's own book."""
    lines = (json.loads(line) for log in server.list_token_logs() for line in log.open(encoding="utf-8"))
    return sum(line["event"] == "schedule" and line["total"] > 0 for line in lines)


def _leave(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(main())
