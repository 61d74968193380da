# The sentinel itself: ledger and host batches with the time of their arrival in, News out. No thread, no
# clock, no file: a recorded ledger goes through it in data time and gives the same again.
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from otel_llmprism.model.charts import ChartReading
from otel_llmprism.model.findings import Finding
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.sentinel.engine import STAGE, EngineWatch, make_empty_scores
from otel_llmprism.service.sentinel.model_book import Fitted, ModelBook, Trainer
from otel_llmprism.service.sentinel.news import EngineReadings, News, ScoredBatch
from otel_llmprism.service.sentinel.open_findings import OpenFindings
from otel_llmprism.service.sentinel.parts import Findings, Gate, Parts
from otel_llmprism.service.sentinel.watch_book import WatchBook

_LOG = logging.getLogger(__name__)
_DECIDE_NS = 200_000_000
_MAX_TOLD = 20


@dataclass(frozen=True, slots=True)
class CoreConfig:
    max_engines: int = 200
    seed: int = 0


class SentinelCore:
    """One thread. What fails for one batch is counted and costs that batch only."""

    def __init__(
        self,
        config: CoreConfig,
        parts: Parts,
        trainer: Trainer,
        counters: Counters,
        ids: Callable[[], str],
    ) -> None:
        self._parts = parts
        self._counters = counters
        self._ids = ids
        self.models = ModelBook(parts, trainer, counters, config.max_engines, config.seed)
        self.watches = WatchBook(parts, self.models, counters, config.max_engines, config.seed)
        self.findings: Findings = parts.build_findings(ids)
        self.open = OpenFindings()
        self._gate: Gate = parts.build_gate()
        self._decided_ns = 0
        self._told: set[str] = set()

    def take(self, batch: LedgerBatch | HostBatch, arrived_ns: int) -> News:
        """Take one batch that arrived then (real time)."""
        news = News()
        try:
            if isinstance(batch, HostBatch):
                self.findings.take_host(batch.source, batch.tables, ScoredBatch.read_anchor(batch))
            else:
                self._take_ledger(batch, arrived_ns, news)
            now_ns = self.watches.read_data_time(arrived_ns)
            if not 0 <= now_ns - self._decided_ns < _DECIDE_NS:
                self._decide(now_ns, news)
        except Exception as error:  # noqa: BLE001 - a broken ledger must not end the watch over all others
            self._note_failure(error)
        return news

    def advance(self, now_ns: int) -> News:
        """Let time pass: close blocks, end requests, train, decide. Once or twice a second."""
        news = News()
        for watch in self.watches.list_watches():
            try:
                self._admit(watch, watch.advance(now_ns), news)
                self._end_requests(watch, news)
            except Exception as error:  # noqa: BLE001 - likewise: one engine
                self._note_failure(error)
        try:
            self._train(news)
            self._decide(self.watches.read_data_time(now_ns), news)
        except Exception as error:  # noqa: BLE001 - likewise
            self._note_failure(error)
        return news

    def follow(self, action: str, finding_id: str, until_ns: int) -> None:
        """Do what a person asked for: acknowledge, dismiss or silence a finding."""
        self.findings.follow(action, finding_id, until_ns)

    def dump(self) -> dict[str, Any]:
        """Return JSON-able state: findings, charts and what is usual."""
        return {"findings": self.findings.dump(), "engines": self.watches.dump()}

    def restore(self, state: object, findings: Sequence[Finding]) -> None:
        """Take a dump over; charts wait until their engine is heard of again."""
        for finding in findings:
            self.open.note(finding)
        if not isinstance(state, dict):
            return
        self.watches.restore(state.get("engines"))
        try:
            self.findings = self._parts.load_findings(self._ids, state["findings"])
        except (ValueError, KeyError, TypeError) as error:
            self._note_failure(error)

    def _take_ledger(self, batch: LedgerBatch, arrived_ns: int, news: News) -> None:
        watch = self.watches.find(batch)
        if watch is None:
            anchor = ScoredBatch.read_anchor(batch)
            self.findings.take_steps(batch.source, batch.tables, make_empty_scores(), anchor)
            return
        scored, readings = watch.take(batch, arrived_ns)
        news.batches.append(scored)
        self.findings.take_steps(batch.source, batch.tables, scored.scored, scored.anchor)
        self._admit(watch, readings, news)

    def _admit(self, watch: EngineWatch, readings: list[ChartReading], news: News) -> None:
        if not readings:
            return
        admitted = self._gate.admit(readings)
        self.findings.take_readings(watch.source, admitted, watch.anchor)
        news.readings.append(EngineReadings(watch.source, watch.anchor, tuple(admitted)))

    def _end_requests(self, watch: EngineWatch, news: News) -> None:
        verdicts, readings = watch.end_requests(lambda one: self.open.name_finding(watch, one))
        news.verdicts += [(watch.source, verdict) for verdict in verdicts]
        self._admit(watch, readings, news)

    def _train(self, news: News) -> None:
        watches = self.watches.list_watches()
        blocked = {watch.source.engine_id for watch in watches if watch.is_blocked}
        self.models.train(blocked)
        for fitted in self.models.collect(blocked):
            self._begin_model(fitted)
            news.fitted.append(fitted)

    def _begin_model(self, fitted: Fitted) -> None:
        for watch in self.watches.list_watches():
            if watch.source.engine_id == fitted.engine_id and fitted.is_changed:
                watch.begin_model(is_first=fitted.is_first)

    def _decide(self, now_ns: int, news: News) -> None:
        self._decided_ns = now_ns
        findings = self.findings.decide(now_ns)
        for finding in findings:
            self.open.note(finding)
        news.findings += findings
        if findings:
            self._block()

    def _block(self) -> None:
        """Keep steps inside open findings out of what is learned."""
        for watch in self.watches.list_watches():
            onset_ns = self.open.find_onset(watch.source.engine_id)
            if onset_ns is None:
                watch.free()
            else:
                watch.block(onset_ns)

    def _note_failure(self, error: Exception) -> None:
        self._counters.add(LOST, stage=STAGE, cause="failed")
        name = f"{type(error).__name__}: {error}"
        if len(self._told) < _MAX_TOLD and name not in self._told:  # said once; the counter goes on
            self._told.add(name)
            _LOG.warning("the sentinel passed over a batch: %s", name, exc_info=error)
