# Readings of many charts come in, the same go out with the alarms taken back that a fleet of this size would
# raise by chance. Benjamini and Yekutieli (2001), so under any dependence between engines, ranks and kinds.
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from otel_llmprism.baseline.charts.config import FleetConfig
from otel_llmprism.model.charts import ChartKey, ChartReading

MAX_SCORE = 6.0  # a higher one is no better evidence: tails are not known that far out
EULER = 0.5772


@dataclass(slots=True)
class ChartDay:
    """One chart's highest score in its present horizon, by its own data time."""

    horizon: int
    log_p: float
    is_admitted: bool
    place: int


class FleetGate:
    """Admits alarms so that, of the charts that alarm in a horizon, a stated share at most is false."""

    def __init__(self, config: FleetConfig) -> None:
        self._config = config
        self._days: OrderedDict[ChartKey, ChartDay] = OrderedDict()
        self._log_p = np.zeros(64)  # by place; 0 is no evidence
        self._free: list[int] = []
        self._used = 0

    def admit(self, readings: Sequence[ChartReading]) -> list[ChartReading]:
        """Return all readings, in order; those not admitted are no alarms."""
        days = [self._note(reading) for reading in readings]
        if any(reading.is_alarm and not day.is_admitted for reading, day in zip(readings, days, strict=True)):
            limit = self._find_limit()
            for day in self._days.values():
                day.is_admitted = day.is_admitted or day.log_p <= limit
        return [
            reading if day.is_admitted or not (reading.is_alarm or reading.is_recovered) else silence(reading)
            for reading, day in zip(readings, days, strict=True)
        ]

    def _note(self, reading: ChartReading) -> ChartDay:
        horizon = reading.end_ns // int(self._config.horizon_blocks * self._config.block_ns)
        day = self._days.get(reading.key)
        if day is None:
            day = self._days[reading.key] = ChartDay(
                horizon, 0.0, is_admitted=False, place=self._take_place()
            )
        # An alarm that lasts over midnight has been admitted and stays so.
        if day.horizon != horizon and not (day.is_admitted and (reading.is_alarm or reading.is_recovered)):
            day.horizon, day.log_p, day.is_admitted = horizon, 0.0, False
            self._log_p[day.place] = 0.0
        if reading.is_alarm:
            day.log_p = min(day.log_p, self._find_log_p(reading.score))
            self._log_p[day.place] = day.log_p
        self._days.move_to_end(reading.key)
        while len(self._days) > self._config.max_charts:
            _, oldest = self._days.popitem(last=False)
            self._log_p[oldest.place] = 0.0
            self._free.append(oldest.place)
        return day

    def _find_log_p(self, score: float) -> float:
        """Return the log chance that a normal chart reaches `score` once in a horizon.

        Limits stand at one alarm in a run length; beyond them the tail is exponential.
        """
        rate = min(score, MAX_SCORE) * math.log(self._config.run_length_blocks)
        return min(0.0, math.log(self._config.horizon_blocks) - rate)

    def _find_limit(self) -> float:
        """Return the largest log p that is admitted among all charts known."""
        charts = len(self._days)
        harmonic = math.log(charts) + EULER + 0.5 / charts if charts > 1 else 1.0
        ordered = np.sort(self._log_p[: self._used])[:charts]
        bound = np.log(self._config.false_discovery_rate * np.arange(1, charts + 1) / (charts * harmonic))
        below = np.flatnonzero(ordered <= bound)
        return float(ordered[below[-1]]) if len(below) else -math.inf

    def _take_place(self) -> int:
        if self._free:
            return self._free.pop()
        if self._used == len(self._log_p):
            self._log_p = np.concatenate([self._log_p, np.zeros(len(self._log_p))])
        self._used += 1
        return self._used - 1


def silence(reading: ChartReading) -> ChartReading:
    return replace(reading, is_alarm=False, is_recovered=False, onset_ns=0, shift=0.0)
