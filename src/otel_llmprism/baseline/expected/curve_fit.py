# Fits one kind's curve: a structure, a factor for each graph mode, and trees on what both leave over.
# Knows rows and their log times; which rows belong to which fold is the caller's.
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from otel_llmprism.baseline.expected.features import (
    FeatureSpace,
    WorkRows,
    build_tree_inputs,
    count_monotone_inputs,
)
from otel_llmprism.baseline.expected.linear_fit import fit_linear
from otel_llmprism.baseline.expected.part import MAX_CORRECTION, Curve
from otel_llmprism.baseline.expected.settings import FitSettings
from otel_llmprism.baseline.expected.structure import Structure
from otel_llmprism.baseline.expected.structure_fit import fit_structure
from otel_llmprism.baseline.expected.tree_learning import learn_trees
from otel_llmprism.baseline.expected.trees import build_no_trees
from otel_llmprism.model.steps import F64

MODE_ROWS = 20  # so many rows of a mode count as much as the belief that modes do not differ


@dataclass(frozen=True, slots=True)
class Lesson:
    """Rows of one kind and how long they took."""

    space: FeatureSpace
    rows: WorkRows
    log_cycle: F64
    settings: FitSettings

    def take(self, rows: npt.NDArray[np.intp]) -> "Lesson":
        return replace(self, rows=self.rows.take(rows), log_cycle=self.log_cycle[rows])


def fit_shape(lesson: Lesson, rng: np.random.Generator) -> Curve:
    """Return a curve without trees."""
    rows, log_cycle = lesson.rows, lesson.log_cycle
    mode = rows.mode.astype(np.intp)
    offset = np.zeros(len(lesson.space.modes))
    curve = _fit_structures(lesson, offset, log_cycle, rng)
    if len(offset) > 1:
        offset = _measure_modes(log_cycle - curve.predict_shape(rows), mode, len(offset))
        curve = _fit_structures(lesson, offset, log_cycle - offset[mode], rng)
    return curve


def _fit_structures(lesson: Lesson, offset: F64, log_cycle: F64, rng: np.random.Generator) -> Curve:
    varies = np.ptp(lesson.rows.work, axis=0) > 0
    work = lesson.rows.work[:, varies]
    fits = (fit_structure, fit_linear)
    structures = tuple(_widen(fit(work, log_cycle, lesson.settings, rng), varies) for fit in fits)
    curve = Curve(structures, offset, 1.0, 0.0, 0.0, build_no_trees())
    shape = curve.predict_shape(lesson.rows)
    return replace(curve, low=float(shape.min()), high=float(shape.max()))


def add_trees(curve: Curve, lesson: Lesson, weight: float, seed: int) -> Curve:
    """Return the curve with trees that learn what it leaves over, and 1 - weight of the structure anew."""
    bare = replace(curve, weight=weight, trees=build_no_trees())
    left = lesson.log_cycle - bare.predict_log(lesson.space, lesson.rows)
    inside = np.clip(curve.predict_shape(lesson.rows), curve.low, curve.high)
    inputs = build_tree_inputs(lesson.space, lesson.rows, inside)
    monotone = count_monotone_inputs(lesson.space)
    return replace(bare, trees=learn_trees(inputs, left, monotone, lesson.settings, seed))


def _widen(structure: Structure, varies: npt.NDArray[np.bool_]) -> Structure:
    """Return the structure over all features; what never changed has no power over time."""
    shape = (*structure.level.shape, len(varies))
    log_hinge, power = np.zeros(shape), np.zeros(shape)
    log_hinge[:, :, varies], power[:, :, varies] = structure.log_hinge, structure.power
    return replace(structure, log_hinge=log_hinge, power=power)


def _measure_modes(left: F64, mode: npt.NDArray[np.intp], modes: int) -> F64:
    offset = np.zeros(modes)
    for place in range(modes):
        mine = left[mode == place]
        if len(mine):
            offset[place] = np.median(mine) * len(mine) / (len(mine) + MODE_ROWS)
    return np.clip(offset, -MAX_CORRECTION, MAX_CORRECTION)
