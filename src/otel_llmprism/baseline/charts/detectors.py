# Standardised blocks come in, the statistics of moving window, EWMA and CUSUM go out: once one by one with
# state, once over whole simulated paths. Both must say the same; a test holds them together.
from collections import deque

import numpy as np

from otel_llmprism.baseline.charts.config import ChartConfig
from otel_llmprism.model.charts import Detector
from otel_llmprism.model.steps import F64

SUMS = (Detector.WINDOW, Detector.EWMA, Detector.CUSUM)
EWMA_REACH = 25  # blocks; what is older weighs less than 0.004
CAP = 3.0  # times the limit: a CUSUM goes no higher, so that it comes down again in bounded time


class SumDetectors:
    """Window, EWMA and CUSUM of one channel, fed block by block with z values clipped by the caller."""

    def __init__(self, config: ChartConfig) -> None:
        self._config = config
        self.reset()

    def reset(self) -> None:
        self._window: deque[float] = deque(maxlen=self._config.window_blocks)
        self._ewma = 0.0
        self._cusum = 0.0
        self.rising = 0  # blocks since the CUSUM left zero

    def add(self, z: float, slack: float, cusum_limit: float) -> tuple[float, float, float]:
        weight = self._config.ewma_weight
        self._window.append(z)
        self._ewma += weight * (z - self._ewma)
        self._cusum = min(CAP * cusum_limit, max(0.0, self._cusum + z - slack))
        self.rising = self.rising + 1 if self._cusum > 0 else 0
        window = sum(self._window) / self._config.window_blocks**0.5
        return window, self._ewma * ((2 - weight) / weight) ** 0.5, self._cusum

    def dump(self) -> list[float]:
        return [self._ewma, self._cusum, float(self.rising), *self._window]

    def load(self, state: list[float]) -> None:
        self._ewma, self._cusum, self.rising = state[0], state[1], int(state[2])
        self._window = deque(state[3:], maxlen=self._config.window_blocks)


def trace_window(z: F64, config: ChartConfig) -> F64:
    """Return the window statistic along paths; `z` is paths x blocks."""
    total = np.cumsum(z, axis=1)
    late = total[:, config.window_blocks :] - total[:, : -config.window_blocks]
    sums: F64 = np.concatenate([total[:, : config.window_blocks], late], axis=1)
    sums /= config.window_blocks**0.5
    return sums


def trace_ewma(z: F64, config: ChartConfig) -> F64:
    weight = config.ewma_weight
    result = weight * z
    factor = weight
    for lag in range(1, min(EWMA_REACH, z.shape[1])):
        factor *= 1 - weight
        result[:, lag:] += factor * z[:, :-lag]
    scaled: F64 = result * ((2 - weight) / weight) ** 0.5
    return scaled


def trace_cusum(z: F64, slack: float) -> F64:
    total = np.cumsum(z - slack, axis=1)
    lowest = np.minimum(np.minimum.accumulate(total, axis=1), 0.0)
    above: F64 = total - lowest
    return above
