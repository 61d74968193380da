# `baseline fit`: step records in, a folder of models out.
import argparse
import sys

from otel_llmprism.baseline.expected import FitSettings, TooFewStepsError
from otel_llmprism.service.baselines.baseline_folder import BaselineFolder
from otel_llmprism.service.baselines.fitting import FitOutcome, fit_baselines
from otel_llmprism.service.baselines.gathering import StepGatherer
from otel_llmprism.service.baselines.record_inputs import RecordInputs


def fit(args: argparse.Namespace) -> int:
    """Fit and store; 1 when there are too few steps."""
    inputs, gatherer = RecordInputs(), StepGatherer(args.seed)
    left_out: set[str] = set()
    for path, batch in inputs.read(args.inputs):
        gatherer.add(batch)
        left_out.update(batch.left_out)
        show_progress(f"{path}: {gatherer.seen} steps")
    show_progress("")
    report_problems(inputs.describe_problems())
    parts = gatherer.read_parts()
    try:
        outcome = fit_baselines(parts, FitSettings(), args.seed, show_progress)
    except TooFewStepsError as error:
        show_progress("")
        report_problems([f"error: no model was fitted: {error}; read {gatherer.seen} steps"])
        return 1
    show_progress("")
    folder = BaselineFolder(args.out)
    for stored in outcome.baselines:
        folder.save(stored)
    _print_outcome(outcome, gatherer.seen, len(parts), sorted(left_out), args.out)
    return 0


def _print_outcome(outcome: FitOutcome, seen: int, instances: int, left_out: list[str], out: object) -> None:
    print(f"{seen} steps of {instances} instances")
    if left_out:
        print(f"not taken as work: {', '.join(left_out)}")
    for stored in outcome.baselines:
        error = "no kind gives an answer"
        if stored.notes.mape is not None:
            error = f"error on steps left out {stored.notes.mape:.1%}"
        print(f"{stored.key.describe()}: version {stored.model.version}, {error}")
        for note in stored.model.notes:
            print(f"    {note}")
    for reason in outcome.skipped:
        print(reason)
    print(f"written to {out}; an instance or engine never seen is answered by the model for any engine")


def report_problems(problems: list[str]) -> None:
    """Say each on a line of its own, on standard error."""
    for problem in problems:
        print(f"otel-llmprism: {problem}", file=sys.stderr)


def show_progress(text: str) -> None:
    """Rewrite one line on a terminal; nothing in a pipe."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text[:100]}")
        sys.stderr.flush()
