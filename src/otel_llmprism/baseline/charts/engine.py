# Steps of one engine and run come in, with what was expected of them; scored steps and chart readings go out.
# Sorts them by kind into charts; time is that of the data. Knows no model, no fleet and no wall clock.
from collections import Counter

import numpy as np

from otel_llmprism.baseline.charts.blocks import I64
from otel_llmprism.baseline.charts.chart import Chart
from otel_llmprism.baseline.charts.config import ChartConfig
from otel_llmprism.baseline.charts.state import STATE_VERSION, dump_chart, read_engine_state, restore_chart
from otel_llmprism.baseline.charts.step_flags import UNKNOWN_WIDENING
from otel_llmprism.model.charts import ChartKey, ChartReading, Series
from otel_llmprism.model.steps import F64, U8, U64, UNKNOWN
from otel_llmprism.model.work import ExpectationTable, ScoredTable
from otel_llmprism.native.ring_codes import StepKind

CHARTED = (StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.TRAIN)
RESTART_STEPS = 1_000  # ids that fall back further, at a later time, are those of a new run
DEFAULT_SPREAD = 0.1  # where a model states none
MAX_RATIO = 30.0
SPREADS = 1e-4, 10.0  # what lies outside means nothing and would overflow
WEIGHTS = 1e-9, 1e9  # s
IS_CHARTED = np.isin(np.arange(256), CHARTED)


class EngineCharts:
    """All charts of one engine and run; bounded memory, never raises on data."""

    def __init__(self, engine_id: str, config: ChartConfig, seed: int) -> None:
        self._engine_id = engine_id
        self._config = config
        self._seed = seed
        self._charts: dict[tuple[Series, int], Chart] = {}
        self._last_step = -1
        self._last_ns = -1
        self.counts: Counter[str] = Counter()

    def score_steps(
        self, step: U64, time_ns: U64, kind: U8, cycle_ns: U64, expectation: ExpectationTable
    ) -> ScoredTable:
        """Return the steps of charted kinds with residuals and flags; call once a step, in order."""
        rows = IS_CHARTED[kind]
        expected_ns, spread = expectation.expected_ns[rows], expectation.spread[rows]
        is_known = expectation.is_known[rows]
        residual = self._find_residual(cycle_ns[rows], expected_ns)
        spread = np.clip(np.where(np.isfinite(spread) & (spread > 0), spread, DEFAULT_SPREAD), *SPREADS)
        flags = np.zeros(len(residual), dtype=np.uint8)
        widened = np.where(is_known > 0, spread, UNKNOWN_WIDENING * spread)
        for code in sorted(set(kind[rows].tolist())):
            own = kind[rows] == code
            chart = self._find_chart(Series.CYCLE, code)
            alarm_shift = chart.alarm.shift if chart.alarm.is_on else None
            flags[own] = chart.flagger.flag(residual[own], widened[own], alarm_shift)
        return ScoredTable(
            step[rows],
            time_ns[rows],
            kind[rows],
            cycle_ns[rows],
            expected_ns,
            residual,
            spread,
            is_known,
            flags,
        )

    def consume(self, scored: ScoredTable, *, is_rehearsal: bool = False) -> list[ChartReading]:
        """Take scored steps into blocks; return what closed. A rehearsal teaches limits and tells nothing."""
        fresh = self._drop_repeats(scored)
        readings: list[ChartReading] = []
        usable = fresh & np.isfinite(scored.residual)
        self.counts["no_residual"] += int(np.count_nonzero(fresh & ~usable))
        self.counts["unseen_steps"] += int(np.count_nonzero(usable & (scored.is_known == 0)))
        for code in sorted(set(scored.kind[usable].tolist())):
            rows = usable & (scored.kind == code)
            table = np.stack(
                [
                    scored.residual[rows],
                    np.clip(scored.expected_ns[rows] / 1e9, *WEIGHTS),
                    scored.spread[rows],
                    scored.is_known[rows] > 0,
                ]
            )
            readings += self._find_chart(Series.CYCLE, code).add(to_time(scored.time_ns[rows]), table)
        if usable.any():
            readings += self.advance(int(to_time(scored.time_ns[usable])[-1]), series=(Series.CYCLE,))
        return [] if is_rehearsal else readings

    def consume_series(self, series: Series, time_ns: U64, log_ratio: F64, weight: F64) -> list[ChartReading]:
        """Chart a series without kinds; rows that are not finite or weigh nothing are counted, not used."""
        usable = np.isfinite(log_ratio) & np.isfinite(weight) & (weight > 0)
        self.counts["no_residual"] += int(np.count_nonzero(~usable))
        ratio = np.clip(log_ratio[usable], -MAX_RATIO, MAX_RATIO)
        rows = len(ratio)
        table = np.stack(
            [ratio, np.clip(weight[usable], *WEIGHTS), np.full(rows, DEFAULT_SPREAD), np.ones(rows)]
        )
        return self._find_chart(series, 0).add(to_time(time_ns[usable]), table)

    def advance(self, time_ns: int, *, series: tuple[Series, ...] = tuple(Series)) -> list[ChartReading]:
        """Close the blocks that ended before `time_ns`, for when nothing more comes."""
        return [
            reading
            for (charted, _), chart in self._charts.items()
            if charted in series
            for reading in chart.advance(time_ns)
        ]

    def mark_regime(self, why: str, time_ns: int) -> None:
        """Learn anew from `time_ns` on: the engine, its limits or its model are not what they were."""
        self.advance(time_ns)
        self.counts[f"regime:{why[:40]}"] += 1
        for chart in self._charts.values():
            chart.mark_regime()

    def dump(self) -> dict[str, object]:
        """Return JSON-able state; open blocks are not in it."""
        charts = [dump_chart(chart) for chart in self._charts.values()]
        return {
            "version": STATE_VERSION,
            "last_step": self._last_step,
            "last_ns": self._last_ns,
            "charts": charts,
        }

    @classmethod
    def load(cls, engine_id: str, config: ChartConfig, seed: int, state: object) -> "EngineCharts":
        """Return charts as they were dumped; raises ChartStateError, one line, on anything else."""
        charts = cls(engine_id, config, seed)
        charts._last_step, charts._last_ns, entries = read_engine_state(state)
        for series, kind, entry in entries:
            restore_chart(charts._find_chart(series, kind), entry)
        return charts

    def _find_chart(self, series: Series, kind: int) -> Chart:
        chart = self._charts.get((series, kind))
        if chart is None:
            key = ChartKey(self._engine_id, series, kind)
            chart = self._charts[series, kind] = Chart(key, self._config, self._seed, self.counts)
        return chart

    def _find_residual(self, cycle_ns: U64, expected_ns: F64) -> F64:
        is_told = (cycle_ns > 0) & (cycle_ns < UNKNOWN) & np.isfinite(expected_ns) & (expected_ns > 0)
        cycle = np.where(is_told, cycle_ns, 1).astype(np.float64)
        ratio = np.log(cycle) - np.log(np.where(is_told, expected_ns, 1.0))
        residual: F64 = np.where(is_told, np.clip(ratio, -MAX_RATIO, MAX_RATIO), np.nan)
        return residual

    def _drop_repeats(self, scored: ScoredTable) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return the rows not seen before; a run that began anew without being marked is marked here."""
        if not len(scored):
            return np.zeros(0, dtype=bool)
        step, time_ns = to_time(scored.step), to_time(scored.time_ns)
        if int(step[0]) < self._last_step - RESTART_STEPS and int(time_ns[0]) > self._last_ns:
            self.mark_regime("step ids began anew", int(time_ns[0]))
            self._last_step = -1
        before = np.maximum.accumulate(np.concatenate([[self._last_step], step[:-1]]))
        before = np.maximum(before, self._last_step)
        fresh: np.ndarray[tuple[int], np.dtype[np.bool_]] = step > before
        self.counts["repeats"] += int(np.count_nonzero(~fresh))
        self._last_step = max(self._last_step, int(step.max()))
        self._last_ns = int(time_ns[-1])
        return fresh


def to_time(values: U64) -> I64:
    """Return numbers of 64 bits as signed ones; what is beyond belongs to no clock and becomes the last."""
    return np.minimum(values, np.uint64(2**63 - 1)).astype(np.int64)
