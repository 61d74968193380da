# The latest words of one engine's charts, in real time. Knows no cause.
import math
from dataclasses import dataclass, field

from otel_llmprism.diagnose.facts.real_time import to_real
from otel_llmprism.diagnose.settings import S_NS
from otel_llmprism.model.charts import ChartKey, ChartReading, Series
from otel_llmprism.model.clocks import Anchor

MAX_LIMITS = 600
MAX_CHARTS = 64


@dataclass(frozen=True, slots=True)
class Alarm:
    """The latest reading of a chart, its times real."""

    reading: ChartReading
    onset_ns: int
    end_ns: int


@dataclass(slots=True)
class ChartNotes:
    alarms: dict[ChartKey, Alarm] = field(default_factory=dict)
    blocks: list[tuple[int, ChartReading]] = field(default_factory=list)  # of steps, by end

    def take(self, reading: ChartReading, anchor: Anchor) -> None:
        """Keep a chart's latest word."""
        if reading.key not in self.alarms and len(self.alarms) >= MAX_CHARTS:
            return
        end = to_real(reading.end_ns, anchor)
        onset = to_real(reading.onset_ns, anchor) or to_real(reading.begin_ns, anchor)
        self.alarms[reading.key] = Alarm(reading, onset, end)
        if reading.key.series is Series.CYCLE:
            self.blocks = [*self.blocks[-MAX_LIMITS:], (end, reading)]

    def has_limits(self) -> bool:
        """Return whether a chart of steps has limits now; a new regime has none at first."""
        return any(
            key.series is Series.CYCLE and not math.isnan(alarm.reading.upper_limit)
            for key, alarm in self.alarms.items()
        )

    def has_alarm(self) -> bool:
        return any(alarm.reading.is_alarm for alarm in self.alarms.values())

    def read_upper(self, kind: int, at_ns: int) -> float:
        """Return the limit of a block of steps at a time, as a log ratio; NaN where there is none."""
        return next((one.upper_limit for _, one in self._list_blocks(kind, at_ns)), math.nan)

    def has_alarm_at(self, kind: int, at_ns: int) -> bool:
        """Return whether a block of steps of this time alarmed."""
        return any(one.is_alarm and end <= at_ns + 2 * S_NS for end, one in self._list_blocks(kind, at_ns))

    def _list_blocks(self, kind: int, at_ns: int) -> list[tuple[int, ChartReading]]:
        return [(end, one) for end, one in self.blocks if end > at_ns and one.key.kind == kind]
