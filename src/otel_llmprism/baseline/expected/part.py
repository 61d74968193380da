# What one kind of step is expected to take: structure, trees on top of it, and how sure that is. Answers rows
# of its own kind only; which rows those are is the model's.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.baseline.expected.features import FeatureSpace, WorkRows, build_tree_inputs
from otel_llmprism.baseline.expected.structure import Structure
from otel_llmprism.baseline.expected.support import Support, tell_known
from otel_llmprism.baseline.expected.trees import Trees
from otel_llmprism.model.steps import F64, U8

MAX_CORRECTION = 3.0  # of a graph mode in log time
MAX_LOG_NS = 60.0  # e^60 ns are 3.6 million years: a bound against overflow, not an opinion


@dataclass(frozen=True, slots=True)
class Curve:
    """ln expected time: `weight` of the structure; the rest of it is learned by trees within its range."""

    structures: tuple[Structure, ...]  # their mean counts, in log: they err in different places
    mode_offset: F64  # per mode of the space: structures differ by a factor between graph modes
    weight: float  # 1: trees only correct; below: they relearn so much of it where steps were seen
    low: float  # the structure's answers on trained work
    high: float
    trees: Trees

    def predict_shape(self, rows: WorkRows) -> F64:
        """Return what the structures alone say."""
        total = np.zeros(len(rows.work))
        for structure in self.structures:
            total += structure.predict_log(rows.work)
        mean: F64 = total / len(self.structures)
        return mean

    def predict_log(self, space: FeatureSpace, rows: WorkRows) -> F64:
        """Return ln ns. Never falls in any kind of work: each summand is monotone."""
        shape = self.predict_shape(rows)
        inside = np.clip(shape, self.low, self.high)
        learned = self.trees.predict(build_tree_inputs(space, rows, inside)) if len(self.trees.ramp) else 0.0
        correction = self.weight * inside - inside + learned
        offset = self.mode_offset[rows.mode.astype(np.intp)] if len(self.mode_offset) else 0.0
        log_ns: F64 = shape + correction + offset
        return np.clip(log_ns, -MAX_LOG_NS, MAX_LOG_NS)


@dataclass(frozen=True, slots=True)
class PartReport:
    """How a part was trained; errors are out of fold, groups never split between folds."""

    steps: int
    groups: int
    mape: float  # mean of |expected / cycle - 1|
    within_10pct: float
    coverage: float  # share of cycles within 1.96 spreads of what was expected
    spread: float  # over all work


@dataclass(frozen=True, slots=True)
class KindPart:
    kind: int
    is_earned: bool  # False: too uncertain to answer; kept so that it can be told why
    space: FeatureSpace
    curve: Curve
    support: Support
    report: PartReport

    def predict(self, rows: WorkRows) -> tuple[F64, F64, U8]:
        """Return expected ns, spread, is_known."""
        log_ns = self.curve.predict_log(self.space, rows)
        distance = self.support.measure_distance(rows.work)
        known = tell_known(distance, rows.is_new_mode)
        spread = self.support.read_spread(log_ns, distance)
        doubt = (rows.missing > 0) | (rows.is_new_mode > 0)
        # What was not told was filled with its median: the answer is as uncertain as a step twice as large.
        spread = np.where(doubt, np.hypot(spread, self.support.widening), spread)
        return np.exp(log_ns), spread, known
