# `baseline show|check|diff|export|import`: what stored models say. Reads; only export and import write.
import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from otel_llmprism.cli.baseline_fit import report_problems, show_progress
from otel_llmprism.semconv.step import KINDS
from otel_llmprism.service.baselines.baseline_codec import encode_baseline
from otel_llmprism.service.baselines.baseline_folder import BaselineFolder, write_whole
from otel_llmprism.service.baselines.checking import CheckReport, check_batch
from otel_llmprism.service.baselines.difference import DRIFT, compare_baselines
from otel_llmprism.service.baselines.prediction import BaselineSet
from otel_llmprism.service.baselines.record_inputs import RecordInputs
from otel_llmprism.service.baselines.stored_baseline import StoredBaseline


def show(args: argparse.Namespace) -> int:
    """Print each model; 1 when there is none."""
    found = _read(args.baseline)
    for stored in found:
        print("\n".join(_describe(stored)))
    return 0 if found else 1


def check(args: argparse.Namespace) -> int:
    """Print how well rows agree; 1 when there is no model or no row."""
    found = _read(args.baseline)
    if not found:
        return 1
    inputs, report = RecordInputs(), CheckReport()
    models = BaselineSet.from_list(found)
    for path, batch in inputs.read(args.inputs):
        check_batch(report, models, batch)
        show_progress(f"{path}: {report.total.rows} steps")
    show_progress("")
    report_problems(inputs.describe_problems())
    if not report.total.rows:
        report_problems(["error: the inputs hold no steps to check"])
        return 1
    text = json.dumps(report.to_json(), indent=1)
    if args.json == "-":
        print(text)
        return 0
    if args.json:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    print("\n".join(_describe_check(report)))
    return 0


def diff(args: argparse.Namespace) -> int:
    """Print where models of the same engine disagree; 1 when nothing can be compared."""
    old, new = ({stored.key: stored for stored in _read(place)} for place in (args.old, args.new))
    for key in sorted(old.keys() ^ new.keys()):
        print(f"{key.describe()}: only in {args.old if key in old else args.new}")
    shared = sorted(old.keys() & new.keys())
    for key in shared:
        drift = compare_baselines(new[key], old[key])
        for kind in drift.kinds:
            mark = "  drift" if abs(kind.median_ratio - 1) > DRIFT else ""
            low, high = kind.low_ratio - 1, kind.high_ratio - 1
            print(
                f"{key.describe()}: {_name(kind.kind):8} {kind.median_ratio - 1:+.1%}"
                f"  (80 % of {kind.steps} steps: {low:+.1%} to {high:+.1%}){mark}"
            )
        if not drift.kinds:
            print(f"{key.describe()}: no work that both know")
    return 0 if shared else 1


def export(args: argparse.Namespace) -> int:
    """Write all models of a folder into one file; 1 when there is none."""
    found = _read(args.baseline)
    if not found:
        return 1
    write_whole(args.file, b"".join(map(encode_baseline, found)))
    print(f"{len(found)} models in {args.file}")
    return 0


def import_file(args: argparse.Namespace) -> int:
    """Take the models of a file into a folder; 1 when there is none."""
    found = _read(args.file)
    for stored in found:
        BaselineFolder(args.out).save(stored)
    if found:
        print(f"{len(found)} models in {args.out}")
    return 0 if found else 1


def _read(place: Path) -> list[StoredBaseline]:
    folder = BaselineFolder(place)
    found = folder.read_all()
    report_problems(folder.problems)
    if not found:
        report_problems([f"error: no model in {place}: fit one with otel-llmprism baseline fit"])
    return found


def _describe(stored: StoredBaseline) -> Iterator[str]:
    notes = stored.notes
    yield f"{stored.key.describe()}: version {stored.model.version}"
    yield (
        f"    fitted on {notes.steps} steps of {notes.instances} instances"
        f" from {_format(notes.from_ns)} to {_format(notes.to_ns)}"
    )
    codes, counts = np.unique(stored.probe.kind, return_counts=True)
    kinds = zip(codes.tolist(), counts.tolist(), strict=True)
    yield "    kinds " + ", ".join(f"{_name(code)} {count / counts.sum():.0%}" for code, count in kinds)
    yield f"    work told by {', '.join(stored.probe.names)}"
    for part in stored.model.parts:
        report = part.report
        yield (
            f"    {_name(part.kind)}: {report.steps} steps, error on steps left out {report.mape:.1%},"
            f" {report.within_10pct:.0%} within 10 %{'' if part.is_earned else ': too far off to answer'}"
        )
    yield from (f"    {note}" for note in stored.model.notes)
    for name, offsets in sorted(stored.offsets.items()):
        factors = ", ".join(f"{_name(code)} {np.exp(value) - 1:+.1%}" for code, value in offsets.items())
        yield f"    {name}: {factors}"


def _describe_check(report: CheckReport) -> Iterator[str]:
    yield f"{'instance':24} {'kind':8} {'steps':>9} {'error':>7} {'within 10 %':>11} {'answered':>8}"
    total = (("all", ""), report.total)
    for (instance, kind), agreement in (*sorted(report.groups.items()), total):
        figures = agreement.to_json()
        mape, within = (_percent(figures[name]) for name in ("mape", "within_10pct"))
        yield (
            f"{instance[:24] or '-':24} {kind:8} {agreement.rows:>9} {mape:>7} {within:>11}"
            f" {_percent(figures['coverage']):>8}"
        )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _name(code: int) -> str:
    return KINDS[code - 1] if 0 < code <= len(KINDS) else "unknown"


def _format(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if time_ns else "unknown"
