# An engine that works, and suffers one fault, as a program: what a demo runs. Prints a line when the fault
# begins and when it ends, and a JSON summary last. Where its telemetry goes is in its environment.
import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.evaluation.record_mini import record_mini
from otel_llmprism.testing.evaluation.run_plan import PlanSizes, RunPlan, build_plan
from otel_llmprism.testing.evaluation.seeds import Split
from otel_llmprism.testing.faults.fault import UnavailableError
from otel_llmprism.testing.programs import ProgramError

INTENSITY = 3.0
HOLD_S = 30.0  # of a fault that is triggered
_POLL_S = 0.2
_NAMES = {"cpu": "cpu_burn", "none": "none", "operator": "operator", "slow_rank": "slow_rank", "link": "link"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 when the engine worked and the fault was made."""
    options = build_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)  # so that what was started is ended
    begins_at_once = options.trigger is None
    plan = build_demo_plan(options.fault, options.begin if begins_at_once else 1.0, options.seconds)
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    try:
        await_begin = None if begins_at_once else build_wait(options.trigger, options.begin)
        recording = record_mini(plan, options.folder, endpoint, is_fresh=True, await_begin=await_begin)
    except (UnavailableError, ProgramError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    faults = [
        {
            **asdict(entry),
            "accepted": KINDS[entry.kind].accepted,
            "subjects": KINDS[entry.kind].subjects,
        }
        for entry in recording.list_faults()
    ]
    summary = recording.read_facts()["summary"] | {"faults": faults}
    print(json.dumps(summary), flush=True)  # noqa: T201  the program's answer
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m otel_llmprism.testing.evaluation.one_fault",
        description="The mini engine under load, with one real fault.",
        epilog="example: python -m otel_llmprism.testing.evaluation.one_fault --fault cpu --folder demo",
    )
    parser.add_argument("--fault", choices=sorted(_NAMES), default="cpu")
    parser.add_argument("--begin", type=float, default=90.0, help="second at which it begins (default 90)")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long in all (default 120)")
    parser.add_argument(
        "--trigger", type=Path, metavar="FILE", help="begin when this file appears, at the latest at --begin"
    )
    parser.add_argument("--folder", type=Path, required=True, help="for ledger and logs")
    return parser


def build_wait(trigger: Path, longest_s: float) -> Callable[[], None]:
    """Return what waits until a file appears, or until the time is up."""

    def wait() -> None:
        deadline_s = time.monotonic() + longest_s
        while not trigger.exists() and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        sys.stderr.write("the fault begins\n")
        sys.stderr.flush()

    return wait


def build_demo_plan(fault: str, begin_s: float, seconds: float) -> RunPlan:
    """Return one episode from `begin_s` on, of an engine as the evaluation draws them."""
    kind = KINDS[_NAMES[fault]]
    plan = build_plan(kind, Split.TUNING, 0, PlanSizes(warmup_s=begin_s, repeats=1))
    if begin_s <= 1.0:
        seconds = begin_s + HOLD_S
    words = {**plan.words, "ranks": 2, "layers": 4, "width": 128, "rate": 10, "output": 48}
    only = replace(plan.episodes[0], begin_s=begin_s, end_s=max(seconds, begin_s + 1), intensity=INTENSITY)
    episodes = (only,) if fault != "none" else ()
    return replace(plan, words=words, episodes=episodes, loads=(), seconds=seconds)


def _leave(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(main())
