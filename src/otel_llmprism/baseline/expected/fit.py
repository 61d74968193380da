# fit_expected: rows of all kinds in, a model out. Each kind learns alone; what is told of its error comes
# from folds that never split a group. Pure: randomness is the seed's.
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otel_llmprism.baseline.expected.curve_fit import Lesson, add_trees, fit_shape
from otel_llmprism.baseline.expected.features import learn_space, read_rows
from otel_llmprism.baseline.expected.format import seal_model
from otel_llmprism.baseline.expected.model import ExpectedTime
from otel_llmprism.baseline.expected.one_thread import compute_on_one_thread
from otel_llmprism.baseline.expected.part import KindPart, PartReport
from otel_llmprism.baseline.expected.settings import FitSettings, TooFewStepsError
from otel_llmprism.baseline.expected.support import NORMAL_95, learn_support, measure_spread
from otel_llmprism.baseline.expected.thinning import Rows, choose_rows, number_cells
from otel_llmprism.baseline.expected.tree_learning import has_learner
from otel_llmprism.model.steps import F64, U64
from otel_llmprism.model.work import WorkTable

Groups = npt.NDArray[np.int64]
MAX_MISS = 1e6
LONGEST_NS = 10**15  # eleven days; a longer cycle is damage
WEIGHTS = (1.0, 0.8)  # of the structure beneath trees
NO_TREES = "Trees were not learned: lightgbm is not installed (extra baseline)."


def fit_expected(
    work: WorkTable, cycle_ns: U64, groups: Groups, settings: FitSettings, seed: int
) -> ExpectedTime:
    """Learn a part for each kind; raise TooFewStepsError when none has enough steps in enough groups."""
    with compute_on_one_thread():
        return _fit_kinds(work, cycle_ns, groups, settings, seed)


def _fit_kinds(
    work: WorkTable, cycle_ns: U64, groups: Groups, settings: FitSettings, seed: int
) -> ExpectedTime:
    told = (cycle_ns > 0) & (cycle_ns < LONGEST_NS)
    parts: list[KindPart] = []
    notes: list[str] = [] if has_learner() or not settings.use_trees else [NO_TREES]
    for kind in np.unique(work.kind):
        rows = np.flatnonzero((work.kind == kind) & told)
        distinct = len(np.unique(groups[rows]))
        if len(rows) < settings.min_steps or distinct < settings.min_groups:
            notes.append(f"Kind {kind} was left out: {len(rows)} steps in {distinct} groups.")
            continue
        rng = np.random.default_rng((seed & 0xFFFFFFFF, int(kind)))
        rows = rows[_thin_rows(work, rows, settings.max_rows, rng)]
        table = WorkTable(work.kind[rows], work.names, work.values[rows])
        log_cycle = np.log(cycle_ns[rows].astype(np.float64))
        space = learn_space(table, log_cycle, settings.max_features)
        lesson = Lesson(space, read_rows(space, table), log_cycle, settings)
        parts.append(_fit_part(int(kind), lesson, groups[rows], rng))
    if not parts:
        raise TooFewStepsError(" ".join(note for note in notes if note != NO_TREES) or "There are no steps.")
    notes += [
        f"Kind {part.kind} gives no answer: it misses by {part.report.mape:.0%} out of fold."
        for part in parts
        if not part.is_earned
    ]
    return seal_model(tuple(parts), tuple(notes))


def _thin_rows(work: WorkTable, rows: Rows, most: int, rng: np.random.Generator) -> Rows:
    cells = number_cells(work.kind[rows], work.values[rows])
    return choose_rows(cells, most, rng.random(len(rows)))


def _fit_part(kind: int, lesson: Lesson, groups: Groups, rng: np.random.Generator) -> KindPart:
    settings, log_cycle = lesson.settings, lesson.log_cycle
    weights = WEIGHTS if settings.use_trees and has_learner() else ()
    guesses = _predict_out_of_fold(lesson, split_groups(groups, settings.folds), weights, rng)
    best = int(np.argmin([np.abs(log_cycle - guess).mean() for guess in guesses]))
    curve = fit_shape(lesson, rng)
    if best > 0:
        curve = add_trees(curve, lesson, weights[best - 1], _draw_seed(rng))
    residual = log_cycle - guesses[best]
    support = learn_support(lesson.rows.work, guesses[best], residual, settings.widening, rng)
    spread = support.read_spread(guesses[best], np.zeros(len(residual)))
    report = _describe_fit(residual, spread, len(np.unique(groups)))
    is_earned = float(np.median(np.abs(residual))) <= settings.max_error
    return KindPart(kind, is_earned, lesson.space, curve, support, report)


def _describe_fit(residual: F64, spread: F64, groups: int) -> PartReport:
    miss = np.minimum(np.abs(np.expm1(-np.clip(residual, -50.0, 50.0))), MAX_MISS)
    return PartReport(
        steps=len(residual),
        groups=groups,
        mape=float(miss.mean()),
        within_10pct=float((miss <= 0.1).mean()),
        coverage=float((np.abs(residual) <= NORMAL_95 * spread).mean()),
        spread=measure_spread(residual),
    )


def _predict_out_of_fold(
    lesson: Lesson, folds: list[Rows], weights: tuple[float, ...], rng: np.random.Generator
) -> list[F64]:
    """Return what curves that never saw a row say of it: without trees, then with each weight."""
    settings = lesson.settings
    quick = replace(lesson, settings=replace(settings, starts=max(2, settings.starts // 2), members=1))
    every = np.arange(len(lesson.log_cycle))
    guesses = [np.empty(len(every)) for _ in range(1 + len(weights))]
    for held in folds:
        seen = quick.take(np.setdiff1d(every, held))
        shape = fit_shape(seen, rng)
        curves = [shape, *(add_trees(shape, seen, weight, _draw_seed(rng)) for weight in weights)]
        for guess, curve in zip(guesses, curves, strict=True):
            guess[held] = curve.predict_log(lesson.space, lesson.rows.take(held))
    return guesses


def _draw_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 31))


def split_groups(groups: Groups, folds: int) -> list[Rows]:
    """Return the rows of each fold: whole groups, the largest first into the emptiest fold."""
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    filled = np.zeros(min(folds, len(sizes)), np.int64)
    fold_of = np.zeros(len(sizes), np.int64)
    for group in np.argsort(-sizes, kind="stable"):
        fold_of[group] = filled.argmin()
        filled[fold_of[group]] += sizes[group]
    fold = fold_of[place.reshape(-1)]
    return [np.flatnonzero(fold == number) for number in range(len(filled))]
