# Log residuals of single steps come in, flags go out. Evidence for a slowdown adds up over a few steps and is
# capped, so that a flag comes late by few steps and goes as soon; its limit is read off normal running.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.baseline.charts.config import ChartConfig
from otel_llmprism.model.steps import F64, U8

UNKNOWN_WIDENING = 2.0  # the model's doubt counts so often where it never saw such work
AGAINST = 12.0  # one step speaks no louder against a slowdown
SHIFT_SHARE, MOST_SHIFT = (
    0.6,
    0.6,
)  # of an alarm's shift that its steps are tested for, so that milder ones count
MIN_STEPS = 200
TAIL = 0.01
MIN_TAIL = 20


@dataclass(frozen=True, slots=True)
class StepLimits:
    """`tail` holds normal steps in standard deviations, ascending; `factor` is true over stated spread."""

    centre: float
    factor: float
    tail: F64
    evidence: float


class StepFlagger:
    """One kind's steps in order; limits are put in by whoever knows which steps were normal."""

    def __init__(self, config: ChartConfig) -> None:
        self._config = config
        self.limits: StepLimits | None = None
        self._evidence = 0.0

    def reset(self) -> None:
        self.limits = None
        self._evidence = 0.0

    def flag(self, residual: F64, spread: F64, alarm_shift: float | None) -> U8:
        """Return 1 for each step that is slower than its work explains; NaN rows are 0 and leave no trace.

        `alarm_shift` is that of the chart while it is in alarm: a single fast step is then no end, and a step
        that is back to normal after a large shift is one at once.
        """
        flags = np.zeros(len(residual), dtype=np.uint8)
        told = ~np.isnan(residual)
        if self.limits is None or not told.any():
            return flags
        config = self._config
        hold, shift = config.step_hold, config.step_shift
        if alarm_shift is not None:
            hold = config.step_alarm_hold
            shift = min(MOST_SHIFT, max(shift, SHIFT_SHARE * alarm_shift))
        gain = weigh_steps(residual[told], spread[told], self.limits, shift)
        trace = add_evidence(gain, self._evidence, self.limits.evidence + hold)
        self._evidence = float(trace[-1])
        flags[told] = trace > self.limits.evidence
        return flags


def weigh_steps(residual: F64, spread: F64, limits: StepLimits, shift: float) -> F64:
    """Return each step's log likelihood ratio, no louder than the empirical tail of normal steps allows."""
    sigma = np.maximum(limits.factor * spread, 1e-3)
    excess = residual - limits.centre
    gauss = shift * (excess - shift / 2) / sigma**2
    rank = np.searchsorted(limits.tail, excess / sigma, side="left")
    rarity = np.log((len(limits.tail) + 1.0) / (len(limits.tail) - rank + 1.0))
    gain: F64 = np.maximum(np.minimum(gauss, rarity), -AGAINST)
    return gain


def add_evidence(gain: F64, start: float, cap: float) -> F64:
    """Return the running evidence, kept between 0 and `cap`."""
    trace = []
    level = start
    for value in gain.tolist():
        level += value
        if level < 0.0:
            level = 0.0
        elif level > cap:
            level = cap
        trace.append(level)
    return np.array(trace)


def fit_step_limits(residual: F64, spread: F64, config: ChartConfig) -> StepLimits | None:
    """Return limits from normal steps in order, None while they are too few."""
    if len(residual) < MIN_STEPS:
        return None
    centre = float(np.median(residual))
    scaled = (residual - centre) / spread
    factor = float(np.clip(1.4826 * np.median(np.abs(scaled)), 0.1, 10.0))
    tail = np.sort(scaled / factor)
    open_limits = StepLimits(centre, factor, tail, float("inf"))
    trace = add_evidence(weigh_steps(residual, spread, open_limits, config.step_shift), 0.0, 1e9)
    return StepLimits(centre, factor, tail, read_evidence_limit(trace, config.step_false_rate))


def read_evidence_limit(trace: F64, false_rate: float) -> float:
    """Return what a share of `false_rate` of normal steps exceeds; exponential where there are too few."""
    ordered = np.sort(trace)
    count = max(MIN_TAIL, int(TAIL * len(ordered)))
    start = float(ordered[-count])
    mean_excess = float((ordered[-count:] - start).mean())
    fitted = start + mean_excess * float(np.log(count / len(ordered) / false_rate))
    if len(ordered) * false_rate >= 4:
        fitted = max(fitted, float(np.quantile(ordered, 1 - false_rate)))
    return max(fitted, 2.0)
