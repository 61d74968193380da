# One engine and run as one node's ledger tells it: steps become scored steps, series become readings,
# requests become verdicts. No thread, no clock; what it learns goes through lessons.py.
from collections.abc import Callable

import numpy as np

from otel_llmprism.model.charts import ChartReading
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.steps import StepTable
from otel_llmprism.model.work import ScoredTable
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerBatch, LedgerSource
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.sentinel.data_clock import DataClock
from otel_llmprism.service.sentinel.engine_model import EngineModel
from otel_llmprism.service.sentinel.lessons import Lessons
from otel_llmprism.service.sentinel.news import RequestVerdict, ScoredBatch
from otel_llmprism.service.sentinel.parts import Charts
from otel_llmprism.service.sentinel.request_watch import EndedOne, RequestWatch
from otel_llmprism.service.sentinel.side_series import SeriesPoints, SideSeries
from otel_llmprism.service.sentinel.work import Rows, build_work, select_charted

STAGE = "sentinel"
# What may still come after a moment that has passed on the node: the ledger is sent twice a second.
_LATENESS_NS = 3_000_000_000


class EngineWatch:
    def __init__(
        self, source: LedgerSource, model: EngineModel, charts: Charts, seed: int, counters: Counters
    ) -> None:
        self.source = source
        self.model = model
        self.charts = charts
        self.requests = RequestWatch(counters)
        self.series = SideSeries(seed)
        self.lessons = Lessons()
        self.anchor = Anchor(0, 0)
        self.steps_seen = 0
        self.data_ns = 0  # the latest result, on the node's clock
        self.clock = DataClock()
        self._last_step = -1
        self._node_ns = 0
        self._is_blocked = False
        self._counters = counters

    def take(self, batch: LedgerBatch, arrived_ns: int) -> tuple[ScoredBatch, list[ChartReading]]:
        """Score the steps of a batch and chart them; what comes twice or too late is counted."""
        self.anchor = ScoredBatch.read_anchor(batch)
        self.clock.note(arrived_ns, self.anchor.realtime_ns)
        steps = batch.tables.steps
        rows = self._select_new(steps)
        work = build_work(steps, rows)
        ready = steps.output_ready_ns[rows]
        expectation = self.model.predict(work)
        scored = self.charts.score_steps(
            steps.step[rows], ready, steps.kind[rows], steps.cycle_ns[rows], expectation
        )
        # Without a model there is nothing to chart, and what is not charted can be rehearsed later.
        readings = list(self.charts.consume(scored)) if self.model.current is not None else []
        if self.model.note_residuals(scored.residual):
            self.charts.mark_regime("model", int(ready[-1]))
        if len(rows):
            self.data_ns = max(self.data_ns, int(ready[-1]))
            self.steps_seen += len(rows)
        self.lessons.add(steps, rows, work, batch.tables.pauses)
        gaps = self.series.chart_gaps(steps, rows, scored, learns=self._learns)
        readings += self._chart(gaps)
        self.requests.take(batch, rows[scored.is_flagged > 0])
        queued = self.series.chart_queues(*self.requests.list_queued(batch), learns=self._learns)
        readings += self._chart(queued)
        return ScoredBatch(batch, self.anchor, rows, scored), readings

    def end_requests(
        self, name_finding: Callable[[EndedOne], str]
    ) -> tuple[list[RequestVerdict], list[ChartReading]]:
        """Give what is to be said of the requests that ended, and chart what of them is unexplained."""
        ended = self.requests.release(self._node_ns)
        verdicts = [
            RequestVerdict(
                one.life.trace_id,
                one.life.span_id,
                one.spent.slow_steps,
                one.unexplained_s,
                name_finding(one),
                tuple(one.spent.slow_ids),
            )
            for one in ended
            if one.life.is_sampled
        ]
        return verdicts, self._chart(self.series.chart_unexplained(ended, learns=self._learns))

    def advance(self, now_ns: int) -> list[ChartReading]:
        """Close what is due by `now_ns` of our clock, and let the model learn what is old enough."""
        self._node_ns = to_node_ns(self.anchor, self.clock.read(now_ns))
        node_ns = self._node_ns - _LATENESS_NS
        for lesson in self.lessons.take_ripe(self.data_ns):
            self.model.learn(lesson.work, lesson.cycle_ns, lesson.time_ns)
        return list(self.charts.advance(node_ns)) if node_ns > self.data_ns > 0 else []

    def begin_model(self, *, is_first: bool) -> None:
        """Chart anew with a new model, and rehearse with what it has not learned from."""
        if not is_first:
            self.charts.mark_regime("model", self.data_ns)
            return
        for lesson in self.lessons.list_waiting():
            expectation = self.model.predict(lesson.work)
            scored = self.charts.score_steps(
                lesson.step, lesson.time_ns, lesson.work.kind, lesson.cycle_ns, expectation
            )
            self.charts.consume(scored, is_rehearsal=True)

    def block(self, onset_ns: int) -> None:
        """A finding that began `onset_ns` (real time) is open on this engine."""
        self._is_blocked = True
        self.lessons.block(to_node_ns(self.anchor, onset_ns))

    def free(self) -> None:
        if self._is_blocked:
            self._is_blocked = False
            self.lessons.free(self.data_ns)

    @property
    def is_blocked(self) -> bool:
        return self._is_blocked

    @property
    def _learns(self) -> bool:
        return not self._is_blocked

    def _select_new(self, steps: StepTable) -> Rows:
        rows = select_charted(steps)
        fresh = rows[steps.step[rows] > self._last_step] if self._last_step >= 0 else rows
        if late := len(rows) - len(fresh):
            self._counters.add(LOST, late, stage=STAGE, cause="late")
        if len(fresh):
            self._last_step = int(steps.step[fresh].max())
        return fresh

    def _chart(self, points: SeriesPoints) -> list[ChartReading]:
        if not len(points):
            return []
        order = np.argsort(points.time_ns, kind="stable")
        return self.charts.consume_series(
            points.series, points.time_ns[order], points.log_ratio[order], points.weight[order]
        )


def to_node_ns(anchor: Anchor, realtime_ns: int) -> int:
    return max(0, realtime_ns - anchor.realtime_ns + anchor.monotonic_ns)


def to_real_ns(anchor: Anchor, node_ns: int) -> int:
    return node_ns - anchor.monotonic_ns + anchor.realtime_ns


def make_empty_scores() -> ScoredTable:
    """Return no steps: for a node whose ledger tells of ranks only."""
    whole, real, small = np.zeros(0, np.uint64), np.zeros(0), np.zeros(0, np.uint8)
    return ScoredTable(whole, whole, small, whole, real, real, real, small, small)
