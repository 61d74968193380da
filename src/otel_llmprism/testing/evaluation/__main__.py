# `python -m otel_llmprism.testing.evaluation`: makes recordings of engines under real faults, replays them
# through the sentinel, and writes what it found into a document.
import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.evaluation.record_mini import record_mini
from otel_llmprism.testing.evaluation.recording import Recording, find_cache
from otel_llmprism.testing.evaluation.report import write_tables
from otel_llmprism.testing.evaluation.results_file import describe_run, replace_section
from otel_llmprism.testing.evaluation.run_plan import RunPlan
from otel_llmprism.testing.evaluation.seeds import Split
from otel_llmprism.testing.evaluation.suite import plan_full, plan_short, record_in, run_suite


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate as the arguments say; 0 when every kind could be judged."""
    options = build_parser().parse_args(arguments)
    split = Split(options.split)
    kinds = options.only or list(KINDS)
    plans = plan_short(split) if options.short else list(plan_full(split, kinds, options.runs))

    def make(plan: RunPlan, cache: Path) -> Recording:
        return record_mini(plan, cache, is_fresh=options.fresh)

    result = run_suite(plans, record_in(options.cache or find_cache(), make))
    text = describe_run(options, result) + "\n" + write_tables(result.scores)
    if options.write:
        replace_section(options.write, f"{options.engine}-{'short' if options.short else 'full'}", text)
    print(text)  # noqa: T201  the program's answer
    return 1 if result.missing else 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m otel_llmprism.testing.evaluation",
        description="Real engines, real faults: what the sentinel says of them.",
        epilog="example: python -m otel_llmprism.testing.evaluation --full --only operator --runs 10",
    )
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--short", action="store_true", help="one recording of three minutes")
    size.add_argument("--full", action="store_true", help="every fault kind, hours")
    parser.add_argument("--engine", choices=("mini",), default="mini", help="default %(default)s")
    parser.add_argument("--only", action="append", choices=sorted(KINDS), help="of the full one; may repeat")
    parser.add_argument("--runs", type=int, default=30, help="of each kind (default %(default)s)")
    parser.add_argument("--split", choices=[str(split) for split in Split], default=str(Split.EVALUATION))
    parser.add_argument("--cache", type=Path, metavar="DIR", help="of recordings (default: the user's cache)")
    parser.add_argument("--fresh", action="store_true", help="record again what the cache has")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
