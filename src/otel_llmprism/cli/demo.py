# `demo`: a real engine, a real fault, the real path, the page. Starts `up` and the engine as a user would, as
# processes of their own, and tells from the query API what arrived and what was found.
import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from otel_llmprism.cli.demo_engine import choose_engine
from otel_llmprism.cli.demo_report import DemoReport
from otel_llmprism.cli.demo_run import DemoSettings, run_demo
from otel_llmprism.config.errors import ConfigError

HELP = "run a real engine with a real fault on this machine and show what was found"
EXAMPLE = "otel-llmprism demo --fault slow_rank"

FAULTS = ("cpu", "operator", "slow_rank", "link", "none")
ENGINES = ("auto", "vllm", "mini")
_QUIET_S, _FAULT_S = 20.0, 240.0  # at most: a fault strikes as soon as what is normal was learned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fault", choices=FAULTS, default="cpu", help="what to break (default %(default)s)")
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"how long the engine runs (default {_FAULT_S:g}, without fault {_QUIET_S:g})",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="vllm, or the mini engine that comes with otel-llmprism; auto: vllm when it is installed",
    )
    parser.add_argument(
        "--engine-python", type=Path, metavar="PATH", help="the Python that has vLLM (default: this one)"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="keep the store here (default: a new folder)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--exit", action="store_true", help="stop when done; 0 iff what was injected was found"
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo; without --exit the page stays up until Ctrl-C."""
    seconds = args.seconds if args.seconds is not None else _QUIET_S if args.fault == "none" else _FAULT_S
    if not 1 <= seconds <= 3600:
        raise ConfigError("--seconds must be from 1 to 3600")
    folder = args.data or Path(tempfile.mkdtemp(prefix="otel-llmprism-demo-"))
    engine = choose_engine(args.engine, args.engine_python, folder, seconds, args.fault)
    settings = DemoSettings(folder, engine, stays=not args.exit)
    again = f"otel-llmprism up --data {folder / 'data'}" if args.exit else ""

    def show(report: DemoReport) -> None:
        print(json.dumps(report.to_json(), indent=2) if args.json else report.to_text(again), flush=True)

    signal.signal(signal.SIGTERM, _leave)  # so that what was started is ended
    report = run_demo(settings, show, sys.stderr)
    return 0 if report.is_right else 1


def _leave(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(0)
