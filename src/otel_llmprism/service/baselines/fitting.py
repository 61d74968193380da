# Gathered steps -> models: one that all engines share, and one of its own for an engine that the shared one
# does not explain. Pure but for the seed; reads and writes no file.
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from otel_llmprism.baseline.expected import ExpectedTime, FitSettings, TooFewStepsError, fit_expected
from otel_llmprism.model.work import WorkTable
from otel_llmprism.service.baselines.baseline_codec import MAX_PROBE_ROWS
from otel_llmprism.service.baselines.gathering import StepPart, join_work
from otel_llmprism.service.baselines.grouping import build_groups
from otel_llmprism.service.baselines.instance_offsets import measure_offsets, name_instance
from otel_llmprism.service.baselines.prediction import predict_instance
from otel_llmprism.service.baselines.stored_baseline import ANY, BaselineKey, FitNotes, StoredBaseline

MIN_OWN_STEPS = 1000  # below that an engine has no model of its own
GOOD_ENOUGH = 0.1  # an engine whose steps the shared model explains as well as that needs no other
MIN_GAIN = 0.1  # by so much an engine's own model must be better
MAX_OWN = 32


@dataclass(slots=True)
class FitOutcome:
    baselines: list[StoredBaseline] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # why an engine has no model of its own, one line each


def fit_baselines(
    parts: list[StepPart], settings: FitSettings, seed: int, tell: Callable[[str], None]
) -> FitOutcome:
    """Return the models of `parts`; TooFewStepsError when not even the shared one can be fitted."""
    tell("fitting the model that all engines share")
    shared = _fit(BaselineKey(), parts, settings, seed)
    outcome = FitOutcome([shared])
    engines = sorted({part.engine for part in parts} - {ANY})
    for engine in engines if len(engines) > 1 else ():
        tell(f"fitting {engine}")
        own = [part for part in parts if part.engine == engine]
        why = _find_no_need(shared, own) if len(outcome.baselines) <= MAX_OWN else "enough models already"
        stored = why or _fit_own(BaselineKey(engine), own, shared, settings, seed)
        if isinstance(stored, str):
            outcome.skipped.append(f"{engine}: {stored}")
        else:
            outcome.baselines.append(stored)
    return outcome


def measure_error(stored: StoredBaseline, parts: list[StepPart]) -> float:
    """Return the mean of |predicted / observed - 1| over all steps; infinite where nothing was predicted."""
    errors = []
    for part in parts:
        told = predict_instance(stored, part.work, name_instance(part.engine, part.instance))
        errors.append(np.abs(told.expected_ns / part.cycle_ns - 1))
    pooled = np.concatenate(errors)
    pooled = pooled[np.isfinite(pooled)]
    return float(pooled.mean()) if len(pooled) else float("inf")


def _find_no_need(shared: StoredBaseline, parts: list[StepPart]) -> str:
    """Return why an engine needs no model of its own, nothing when it might."""
    steps = sum(map(len, parts))
    if steps < MIN_OWN_STEPS:
        return f"{steps} steps, a model of its own takes {MIN_OWN_STEPS}"
    error = measure_error(shared, parts)
    return f"the shared model misses by {error:.1%}, that will do" if error <= GOOD_ENOUGH else ""


def _fit_own(
    key: BaselineKey, parts: list[StepPart], shared: StoredBaseline, settings: FitSettings, seed: int
) -> StoredBaseline | str:
    try:
        own = _fit(key, parts, settings, seed)
    except TooFewStepsError as error:
        return str(error)
    # Its own error is on steps left out, the shared one's is not: what is left of the gain is real.
    if own.notes.mape is None or own.notes.mape > (1 - MIN_GAIN) * measure_error(shared, parts):
        return "a model of its own is no better than the shared one"
    return own


def _fit(key: BaselineKey, parts: list[StepPart], settings: FitSettings, seed: int) -> StoredBaseline:
    parts = [part for part in parts if len(part)]
    if not parts:
        raise TooFewStepsError("There are no steps.")
    work = join_work([part.work for part in parts])
    cycle_ns = np.concatenate([part.cycle_ns for part in parts])
    model = fit_expected(work, cycle_ns, build_groups(parts), settings, seed)
    starts = [part.start_ns[[0, -1]] for part in parts]
    first, last = min(int(s[0]) for s in starts), max(int(s[1]) for s in starts)
    notes = FitNotes(len(cycle_ns), len(parts), seed, first, last, read_error(model))
    offsets = measure_offsets(parts, [model.predict(part.work) for part in parts])
    return StoredBaseline(key, model, notes, _pick_probe(work, seed), offsets)


def read_error(model: ExpectedTime) -> float | None:
    """Return the error out of fold over the kinds that answer, None when none does."""
    told = [part.report for part in model.parts if part.is_earned]
    steps = sum(report.steps for report in told)
    return sum(report.mape * report.steps for report in told) / steps if steps else None


def _pick_probe(work: WorkTable, seed: int) -> WorkTable:
    count = len(work.kind)
    rows = np.sort(np.random.default_rng(seed).permutation(count)[:MAX_PROBE_ROWS])
    return WorkTable(work.kind[rows], work.names, work.values[rows])
