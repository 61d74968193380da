# The sentinel itself: ledger and host batches with the time of their arrival in, News out. No thread, no
# clock, no file: a recorded ledger goes through it in data time and gives the same again.
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from otel_llmprism.model.charts import ChartReading
from otel_llmprism.model.findings import Finding
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch, LedgerSource
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.sentinel.engine import STAGE, EngineWatch, make_empty_scores
from otel_llmprism.service.sentinel.facts import EngineFacts
from otel_llmprism.service.sentinel.model_book import Fitted, ModelBook, Trainer
from otel_llmprism.service.sentinel.news import EngineReadings, News, ScoredBatch
from otel_llmprism.service.sentinel.open_findings import OpenFindings
from otel_llmprism.service.sentinel.parts import Charts, Findings, Gate, Parts
from otel_llmprism.service.sentinel.work import select_charted

_LOG = logging.getLogger(__name__)
_DECIDE_NS = 200_000_000


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
        self._config = config
        self._parts = parts
        self._counters = counters
        self.models = ModelBook(parts, trainer, counters, config.max_engines, config.seed)
        self.findings: Findings = parts.build_findings(ids)
        self.open = OpenFindings()
        self._gate: Gate = parts.build_gate()
        self._watches: OrderedDict[LedgerSource, EngineWatch] = OrderedDict()
        self._chiefs: dict[tuple[str, str], LedgerSource] = {}
        self._facts: OrderedDict[str, EngineFacts] = OrderedDict()
        self._ids = ids
        self._stored_charts: dict[
            str, object
        ] = {}  # of an earlier run of the processor, until they are asked for
        self._decided_ns = 0
        self._told: set[str] = set()

    def note_facts(self, engine_id: str, facts: EngineFacts) -> None:
        """Say what an engine's resource tells of it; best before its first batch."""
        self._facts[engine_id] = facts
        if len(self._facts) > self._config.max_engines:
            self._facts.popitem(last=False)

    def take(self, batch: LedgerBatch | HostBatch, arrived_ns: int) -> News:
        """Take one batch that arrived then (real time)."""
        news = News()
        try:
            if isinstance(batch, HostBatch):
                self._take_host(batch)
            else:
                self._take_ledger(batch, news)
            if arrived_ns - self._decided_ns >= _DECIDE_NS or arrived_ns < self._decided_ns:
                self._decide(arrived_ns, news)
        except Exception as error:  # noqa: BLE001 - a broken ledger must not end the watch over all others
            self._note_failure(error)
        return news

    def advance(self, now_ns: int) -> News:
        """Let time pass: close blocks, end requests, train, decide. Once or twice a second."""
        news = News()
        for watch in list(self._watches.values()):
            try:
                self._admit(watch, watch.advance(now_ns), news)
                self._end_requests(watch, now_ns, news)
            except Exception as error:  # noqa: BLE001 - likewise: one engine
                self._note_failure(error)
        try:
            blocked = {watch.source.engine_id for watch in self._watches.values() if watch.is_blocked}
            self.models.train(blocked)
            for fitted in self.models.collect(blocked):
                self._mark_model(fitted)
                news.fitted.append(fitted)
            self._decide(now_ns, news)
        except Exception as error:  # noqa: BLE001 - likewise
            self._note_failure(error)
        return news

    def follow(self, action: str, finding_id: str, until_ns: int) -> None:
        """Do what a person asked for: acknowledge, dismiss or silence a finding."""
        self.findings.follow(action, finding_id, until_ns)

    def list_watches(self) -> list[EngineWatch]:
        """Return who is watched, one an engine and run."""
        return [watch for watch in self._watches.values() if self._is_chief(watch.source)]

    def has_facts(self, engine_id: str) -> bool:
        return engine_id in self._facts

    def find_facts(self, engine_id: str) -> EngineFacts:
        return self._facts.get(engine_id, EngineFacts())

    def dump(self) -> dict[str, Any]:
        """Return JSON-able state: findings, charts and what is usual."""
        watches = {
            _name_source(watch.source): {"charts": watch.charts.dump(), "series": watch.series.dump()}
            for watch in self.list_watches()
        }
        return {"findings": self.findings.dump(), "engines": watches}

    def restore(self, state: object, findings: Sequence[Finding]) -> None:
        """Take a dump over; charts wait until their engine is heard of again."""
        for finding in findings:
            self.open.note(finding)
        if not isinstance(state, dict):
            return
        self._stored_charts = state["engines"] if isinstance(state.get("engines"), dict) else {}
        try:
            self.findings = self._parts.load_findings(self._ids, state["findings"])
        except (ValueError, KeyError, TypeError) as error:
            self._note_failure(error)

    def _take_ledger(self, batch: LedgerBatch, news: News) -> None:
        source = batch.source
        self._choose_chief(batch)
        if not self._is_chief(source):
            anchor = ScoredBatch.read_anchor(batch)
            self.findings.take_steps(source, batch.tables, make_empty_scores(), anchor)
            return
        watch = self._find_watch(source)
        scored, readings = watch.take(batch)
        news.batches.append(scored)
        self.findings.take_steps(source, batch.tables, scored.scored, scored.anchor)
        self._admit(watch, readings, news)

    def _take_host(self, batch: HostBatch) -> None:
        self.findings.take_host(batch.source, batch.tables, ScoredBatch.read_anchor(batch))

    def _find_watch(self, source: LedgerSource) -> EngineWatch:
        watch = self._watches.get(source)
        if watch is None:
            seed = self._config.seed + len(self._watches)
            model = self.models.find(source.engine_id, self.find_facts(source.engine_id))
            stored = self._stored_charts.pop(_name_source(source), None)
            charts = self._build_charts(source.engine_id, seed, stored)
            watch = self._watches[source] = EngineWatch(source, model, charts, seed, self._counters)
            if isinstance(stored, dict):
                watch.series.load(stored.get("series"))
            self._forget_older(source)
        self._watches.move_to_end(source)
        return watch

    def _build_charts(self, engine_id: str, seed: int, stored: object) -> Charts:
        if isinstance(stored, dict):
            try:
                return self._parts.load_charts(engine_id, seed, stored["charts"])
            except (ValueError, KeyError, TypeError) as error:  # damaged: learned again
                self._note_failure(error)
        return self._parts.build_charts(engine_id, seed)

    def _forget_older(self, source: LedgerSource) -> None:
        """Let go of the engine's earlier runs, and of the engine that was silent longest at the bound."""
        for old in [old for old in self._watches if old.engine_id == source.engine_id and old != source]:
            if old.run != source.run:
                self._drop(old)
        while len(self._watches) > self._config.max_engines:
            self._drop(next(iter(self._watches)))

    def _drop(self, source: LedgerSource) -> None:
        self._watches.pop(source, None)
        if self._is_chief(source):
            self._chiefs.pop((source.engine_id, source.run), None)

    def _choose_chief(self, batch: LedgerBatch) -> None:
        """Chart an engine by one node: the first whose ledger has cycles."""
        key = (batch.source.engine_id, batch.source.run)
        if key not in self._chiefs and len(select_charted(batch.tables.steps)):
            self._chiefs[key] = batch.source

    def _is_chief(self, source: LedgerSource) -> bool:
        return self._chiefs.get((source.engine_id, source.run)) == source

    def _admit(self, watch: EngineWatch, readings: list[ChartReading], news: News) -> None:
        if not readings:
            return
        admitted = self._gate.admit(readings)
        self.findings.take_readings(watch.source, admitted, watch.anchor)
        news.readings.append(EngineReadings(watch.source, watch.anchor, tuple(admitted)))

    def _end_requests(self, watch: EngineWatch, now_ns: int, news: News) -> None:
        verdicts, readings = watch.end_requests(
            watch.to_node_ns(now_ns), lambda one: self.open.name_finding(watch, one)
        )
        news.verdicts += [(watch.source, verdict) for verdict in verdicts]
        self._admit(watch, readings, news)

    def _mark_model(self, fitted: Fitted) -> None:
        for watch in self._watches.values():
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
        for watch in self._watches.values():
            onset_ns = self.open.find_onset(watch.source.engine_id)
            if onset_ns is None:
                watch.free()
            else:
                watch.block(onset_ns)

    def _note_failure(self, error: Exception) -> None:
        self._counters.add(LOST, stage=STAGE, cause="failed")
        name = f"{type(error).__name__}: {error}"
        if len(self._told) < 20 and name not in self._told:  # said once; the counter goes on
            self._told.add(name)
            _LOG.warning("the sentinel passed over a batch: %s", name, exc_info=error)


def _name_source(source: LedgerSource) -> str:
    return f"{source.engine_id}\0{source.run}\0{source.node}"
