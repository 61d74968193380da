# All engines that are watched: one watch an engine and run, on the node whose ledger has its cycles. Bounded;
# the engine that was silent longest leaves. Charts of an earlier run of the processor wait here for theirs.
from collections import OrderedDict
from typing import Any

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerBatch, LedgerSource
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.sentinel.data_clock import choose_lag
from otel_llmprism.service.sentinel.engine import STAGE, EngineWatch
from otel_llmprism.service.sentinel.facts import EngineFacts
from otel_llmprism.service.sentinel.model_book import ModelBook
from otel_llmprism.service.sentinel.parts import Charts, Parts
from otel_llmprism.service.sentinel.work import select_charted


class WatchBook:
    def __init__(
        self, parts: Parts, models: ModelBook, counters: Counters, max_engines: int, seed: int
    ) -> None:
        self._parts = parts
        self._models = models
        self._counters = counters
        self._max_engines = max_engines
        self._seed = seed
        self._watches: OrderedDict[LedgerSource, EngineWatch] = OrderedDict()
        self._chiefs: dict[tuple[str, str], LedgerSource] = {}
        self.facts: OrderedDict[str, EngineFacts] = OrderedDict()
        self._stored: dict[str, object] = {}  # charts of an earlier run of the processor, by source
        self._lag_ns = 0

    def note_facts(self, engine_id: str, facts: EngineFacts) -> None:
        """Say what an engine's resource tells of it; best before its first batch."""
        self.facts[engine_id] = facts
        if len(self.facts) > self._max_engines:
            self.facts.popitem(last=False)

    def find(self, batch: LedgerBatch) -> EngineWatch | None:
        """Return the watch that charts this ledger; None: another node's does, or nobody's yet."""
        source = batch.source
        key = (source.engine_id, source.run)
        if key not in self._chiefs and len(select_charted(batch.tables.steps)):
            self._chiefs[key] = source  # the first whose ledger has cycles
        if self._chiefs.get(key) != source:
            return None
        watch = self._watches.get(source)
        if watch is None:
            watch = self._watches[source] = self._build(source)
            self._forget(source)
        self._watches.move_to_end(source)
        return watch

    def list_watches(self) -> list[EngineWatch]:
        return list(self._watches.values())

    def read_data_time(self, now_ns: int) -> int:
        """Return what time it is in the fleet's data."""
        clocks = [watch.clock for watch in self._watches.values()]
        self._lag_ns = choose_lag(clocks, now_ns, self._lag_ns)
        return now_ns - self._lag_ns

    def dump(self) -> dict[str, Any]:
        """Return JSON-able state: charts, and what is usual."""
        return {
            _name_source(watch.source): {"charts": watch.charts.dump(), "series": watch.series.dump()}
            for watch in self._watches.values()
        }

    def restore(self, state: object) -> None:
        """Keep a dump until its engines are heard of again."""
        self._stored = dict(list(state.items())[-self._max_engines :]) if isinstance(state, dict) else {}

    def _build(self, source: LedgerSource) -> EngineWatch:
        seed = self._seed + len(self._watches)
        facts = self.facts.get(source.engine_id, EngineFacts())
        model = self._models.find(source.engine_id, facts)
        stored = self._stored.pop(_name_source(source), None)
        charts = self._build_charts(source.engine_id, seed, stored)
        watch = EngineWatch(source, model, charts, seed, self._counters)
        if isinstance(stored, dict):
            watch.series.load(stored.get("series"))
        return watch

    def _build_charts(self, engine_id: str, seed: int, stored: object) -> Charts:
        if isinstance(stored, dict):
            try:
                return self._parts.load_charts(engine_id, seed, stored["charts"])
            except (ValueError, KeyError, TypeError):  # damaged: learned again
                self._counters.add(LOST, stage=STAGE, cause="damaged_charts")
        return self._parts.build_charts(engine_id, seed)

    def _forget(self, source: LedgerSource) -> None:
        """Let go of the engine's earlier runs, and of the engine that was silent longest at the bound."""
        for old in list(self._watches):
            if old.engine_id == source.engine_id and old.run != source.run:
                self._drop(old)
        while len(self._watches) > self._max_engines:
            self._drop(next(iter(self._watches)))

    def _drop(self, source: LedgerSource) -> None:
        del self._watches[source]
        self._chiefs.pop((source.engine_id, source.run), None)


def _name_source(source: LedgerSource) -> str:
    return f"{source.engine_id}\0{source.run}\0{source.node}"
