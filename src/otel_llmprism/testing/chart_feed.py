# Steps of equal work with log-normal noise, fed parcel by parcel into one engine's charts: a deterministic
# stream for tests. Keeps what came out; knows nothing of how charts decide.
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from otel_llmprism.baseline.charts import EngineCharts
from otel_llmprism.model.charts import ChartReading
from otel_llmprism.model.work import ExpectationTable, ScoredTable

F64 = npt.NDArray[np.float64]
DECODE, MIXED, IDLE = 2, 3, 5
SECOND_NS = 1_000_000_000


class ChartFeed:
    """Feeds one engine's charts with steps of equal work, parcel by parcel, and keeps what came out."""

    def __init__(
        self, charts: EngineCharts, seed: int, *, sigma: float = 0.03, cycle_s: float = 0.02
    ) -> None:
        self.charts = charts
        self.readings: list[ChartReading] = []
        self.scored: list[ScoredTable] = []
        self.now_ns = 0
        self.step = 0
        self._sigma = sigma
        self._cycle_s = cycle_s
        self._rng = np.random.default_rng(seed)

    def run(
        self,
        seconds: float,
        factor: float | Callable[[F64], F64] = 1.0,
        *,
        spread: float = 0.03,
        is_known: int = 1,
        load: float = 1.0,
        kind: int = DECODE,
    ) -> list[ChartReading]:
        """Run on for so long of data time; return the readings of this stretch."""
        before = len(self.readings)
        end_ns = self.now_ns + int(seconds * SECOND_NS)
        while self.now_ns < end_ns:
            count = max(1, round(0.5 / self._cycle_s))
            expected = np.full(count, self._cycle_s * load * 1e9)
            noise = self._sigma * self._rng.standard_normal(count)
            slow = factor(noise) if callable(factor) else np.full(count, factor)
            cycle = expected * np.exp(noise) * slow
            times = self.now_ns + np.cumsum(cycle)
            self.feed(times, cycle, expected, spread=spread, is_known=is_known, kind=kind)
        return self.readings[before:]

    def feed(
        self,
        times: F64,
        cycle: F64,
        expected: F64,
        *,
        spread: float = 0.03,
        is_known: int = 1,
        kind: int = DECODE,
    ) -> None:
        """Feed these steps as one parcel; the last time is where the data then is."""
        count = len(times)
        steps = np.arange(self.step, self.step + count, dtype=np.uint64)
        scored = self.charts.score_steps(
            steps,
            times.astype(np.uint64),
            np.full(count, kind, dtype=np.uint8),
            cycle.astype(np.uint64),
            ExpectationTable(expected, np.full(count, spread), np.full(count, is_known, dtype=np.uint8)),
        )
        self.scored.append(scored)
        self.readings += self.charts.consume(scored)
        self.step += count
        self.now_ns = int(times[-1])

    def read_flags(self) -> npt.NDArray[np.uint8]:
        return np.concatenate([scored.is_flagged for scored in self.scored])
