# A WorkTable as the numbers a model was trained on: kinds of work that can only cost time, free features with
# no such promise, and modes that are told apart. Missing values are filled and counted. Knows no times.
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import F64, U8, U64
from otel_llmprism.model.work import GRAPH_MODE, STANDARD_FEATURES, WorkTable

MAX_WORK = 1e15  # beyond it a number is no work but damage
MAX_PAIRED = 6  # products are formed of the first few features only, since their number grows squared
MAX_MODES = 64
DECREASING = -0.3  # rank correlation below which a further feature is no work


@dataclass(frozen=True, slots=True)
class FeatureSpace:
    """The features of one trained part; every `fill` stands in where a value is missing."""

    work_names: tuple[str, ...]  # more of it never takes less time
    free_names: tuple[str, ...]
    work_fill: F64
    free_fill: F64
    modes: F64  # the graph modes that were seen, sorted; empty when nobody told them
    pairs: tuple[tuple[int, int], ...]  # of work_names, whose products the trees see


@dataclass(frozen=True, slots=True)
class WorkRows:
    """Rows in a FeatureSpace: nothing is NaN any more, `missing` counts what was filled."""

    work: F64  # rows x work_names, >= 0
    free: F64
    mode: F64  # place in the space's modes
    is_new_mode: U8
    missing: U64

    def take(self, rows: npt.NDArray[np.intp]) -> "WorkRows":
        return WorkRows(
            self.work[rows], self.free[rows], self.mode[rows], self.is_new_mode[rows], self.missing[rows]
        )


def learn_space(work: WorkTable, log_cycle: F64, max_features: int) -> FeatureSpace:
    """Choose the features that differ from each other; standard ones first.

    One that never changed stays: it explains nothing, but a step that has another value is new work.
    """
    order = [name for name in STANDARD_FEATURES if name in work.names and name != GRAPH_MODE]
    order += sorted(name for name in work.names if name not in STANDARD_FEATURES)
    work_names: list[str] = []
    free_names: list[str] = []
    kept: list[F64] = []
    for name in order:
        column = clean_column(work.read_feature(name))
        if len(kept) >= max_features or _is_redundant(column, kept):
            continue
        kept.append(column)
        is_work = name in STANDARD_FEATURES or _rank_correlation(column, log_cycle) >= DECREASING
        (work_names if is_work else free_names).append(name)
    modes = np.unique(clean_column(work.read_feature(GRAPH_MODE)))
    return FeatureSpace(
        tuple(work_names),
        tuple(free_names),
        _read_fill(work, work_names),
        _read_fill(work, free_names),
        modes[~np.isnan(modes)][:MAX_MODES],
        tuple(combinations(range(min(len(work_names), MAX_PAIRED)), 2)),
    )


def read_rows(space: FeatureSpace, work: WorkTable) -> WorkRows:
    """Bring any WorkTable into the space; features it does not know are ignored."""
    values, missing = _fill_columns(work, space.work_names, space.work_fill)
    free, free_missing = _fill_columns(work, space.free_names, space.free_fill)
    mode = np.zeros(len(work))
    is_new = np.zeros(len(work), np.uint8)
    if len(space.modes):
        told = clean_column(work.read_feature(GRAPH_MODE))
        place = np.clip(np.searchsorted(space.modes, told), 0, len(space.modes) - 1)
        is_new = (space.modes[place] != told).astype(np.uint8)  # NaN equals nothing
        missing = missing + np.isnan(told)
        mode = place.astype(np.float64)
    return WorkRows(values, free, mode, is_new, missing + free_missing)


def build_tree_inputs(space: FeatureSpace, rows: WorkRows, log_structure: F64) -> F64:
    """Return what trees split on: log work, log products, the structure's answer, then what has no order."""
    logs = np.log1p(rows.work)
    columns = [logs]
    if space.pairs:
        first, second = np.array(space.pairs).T
        columns.append(np.log1p(rows.work[:, first] * rows.work[:, second]))
    columns += [log_structure[:, None], rows.free, rows.mode[:, None]]
    return np.concatenate(columns, axis=1)


def count_monotone_inputs(space: FeatureSpace) -> int:
    """Return how many of the trees' inputs, from the first, may only add time."""
    return len(space.work_names) + len(space.pairs) + 1


def clean_column(column: F64) -> F64:
    """Return NaN where a number cannot be work: negative, infinite or absurdly large."""
    with np.errstate(invalid="ignore"):
        cleaned: F64 = np.where((column >= 0) & (column <= MAX_WORK), column, np.nan)
    return cleaned


def _fill_columns(work: WorkTable, names: Sequence[str], fill: F64) -> tuple[F64, U64]:
    values = np.empty((len(work), len(names)))
    missing = np.zeros(len(work), np.uint64)
    for place, name in enumerate(names):
        column = clean_column(work.read_feature(name))
        is_gone = np.isnan(column)
        missing += is_gone
        values[:, place] = np.where(is_gone, fill[place], column)
    return values, missing


def _read_fill(work: WorkTable, names: Sequence[str]) -> F64:
    return np.array([float(np.nanmedian(clean_column(work.read_feature(name)))) for name in names])


def _is_redundant(column: F64, kept: Sequence[F64]) -> bool:
    if np.isnan(column).mean() > 0.5:
        return True
    return any(np.array_equal(column, other, equal_nan=True) for other in kept)


def _rank_correlation(first: F64, second: F64) -> float:
    told = ~np.isnan(first)
    a, b = (np.argsort(np.argsort(values[told])).astype(np.float64) for values in (first, second))
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else 0.0
