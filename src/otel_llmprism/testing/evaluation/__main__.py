# `python -m otel_llmprism.testing.evaluation`: makes recordings of engines under real faults, replays them
# through the sentinel, and writes what it found into a document.
import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from otel_llmprism.baseline.expected import stay_on_one_thread
from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.evaluation.live import LiveOutcome, watch_live
from otel_llmprism.testing.evaluation.quiet import judge_quiet, plan_quiet, tell_quiet
from otel_llmprism.testing.evaluation.record_mini import record_mini
from otel_llmprism.testing.evaluation.record_vllm import KINDS_OF_VLLM, record_vllm
from otel_llmprism.testing.evaluation.recording import Recording, find_cache
from otel_llmprism.testing.evaluation.report import tell_live, write_tables
from otel_llmprism.testing.evaluation.results_file import describe_run, replace_section
from otel_llmprism.testing.evaluation.run_plan import RunPlan
from otel_llmprism.testing.evaluation.seeds import Purpose, Split, derive_seed
from otel_llmprism.testing.evaluation.suite import (
    SHORT_KINDS,
    SHORT_VLLM_KINDS,
    plan_full,
    plan_short,
    record_in,
    run_suite,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate as the arguments say; 0 when every kind could be judged."""
    options = build_parser().parse_args(arguments)
    stay_on_one_thread()
    cache = options.cache or find_cache()
    record = record_in(cache, choose_engine(options))
    if options.quiet:
        plans = plan_quiet(Split(options.split), options.quiet)
        seed = derive_seed(Purpose.ANALYSIS, Split(options.split), "quiet", 0)
        name, text, status = "quiet", tell_quiet(judge_quiet(map(record, plans), seed)), 0
    elif options.live:
        name, text, status = "live", tell_live(watch_all(options, cache)), 0
    else:
        result = run_suite(choose_plans(options), record)
        name, status = "short" if options.short else "full", 1 if result.missing else 0
        text = describe_run(options, result) + "\n" + write_tables(result.scores)
    if options.write:
        replace_section(options.write, f"{options.engine}-{name}", text)
    print(text)  # noqa: T201  the program's answer
    return status


def choose_engine(options: argparse.Namespace) -> Callable[[RunPlan, Path], Recording]:
    """Return what records a plan with the engine that was asked for."""

    def make(plan: RunPlan, cache: Path) -> Recording:
        if options.engine == "vllm":
            return record_vllm(plan, cache, options.engine_python, is_fresh=options.fresh)
        return record_mini(plan, cache, is_fresh=options.fresh)

    return make


def choose_plans(options: argparse.Namespace) -> list[RunPlan]:
    split, is_vllm = Split(options.split), options.engine == "vllm"
    if options.short:
        return plan_short(split, SHORT_VLLM_KINDS if is_vllm else SHORT_KINDS)
    kinds = options.only or list(KINDS_OF_VLLM if is_vllm else KINDS)
    return list(plan_full(split, kinds, options.runs))


def watch_all(options: argparse.Namespace, cache: Path) -> list[LiveOutcome]:
    """Watch each plan live, one after the other."""
    outcomes = []
    for plan in choose_plans(options):

        def record(endpoint: str, plan: RunPlan = plan) -> Recording:
            if options.engine == "vllm":
                return record_vllm(plan, cache, options.engine_python, endpoint)
            return record_mini(plan, cache, endpoint)

        outcomes += watch_live(cache / f"live-{plan.name}", record)
    return outcomes


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m otel_llmprism.testing.evaluation",
        description="Real engines, real faults: what the sentinel says of them.",
        epilog="example: python -m otel_llmprism.testing.evaluation --full --only operator --runs 10",
    )
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--short", action="store_true", help="one recording of three minutes")
    size.add_argument("--full", action="store_true", help="every fault kind, hours")
    size.add_argument("--quiet", type=int, metavar="N", help="N lives of ten minutes with no fault")
    parser.add_argument("--live", action="store_true", help="through `up` instead of a replay")
    parser.add_argument("--engine", choices=("mini", "vllm"), default="mini", help="default %(default)s")
    parser.add_argument(
        "--engine-python", type=Path, default=Path(sys.executable), help="the Python that has vLLM"
    )
    parser.add_argument("--only", action="append", choices=sorted(KINDS), help="of the full one; may repeat")
    parser.add_argument("--runs", type=int, default=30, help="of each kind (default %(default)s)")
    parser.add_argument("--split", choices=[str(split) for split in Split], default=str(Split.EVALUATION))
    parser.add_argument("--cache", type=Path, metavar="DIR", help="of recordings (default: the user's cache)")
    parser.add_argument("--fresh", action="store_true", help="record again what the cache has")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
