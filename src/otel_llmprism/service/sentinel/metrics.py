# Expected and excess time and findings as metrics: cumulative by engine for OTLP, and on our own counters for
# the /metrics page. One thread.
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from otel_llmprism.exporters.otlp_metrics import Reading
from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerSource
from otel_llmprism.semconv import metric as names
from otel_llmprism.semconv.baseline import BASELINE_RATIO
from otel_llmprism.semconv.step import KINDS
from otel_llmprism.service.exporter_process.metric_store import MetricStore
from otel_llmprism.service.sentinel.model_book import Fitted
from otel_llmprism.service.sentinel.news import ScoredBatch

_MAX_ENGINES = 200  # with a name on the page
_SILENT_NS = 300_000_000_000
_MAX_SERIES = 64  # of one engine
_NS_PER_S = 1e9
EngineKey = tuple[str, str]


class EngineSeries:
    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.seen_ns = start_ns
        self.store = MetricStore(_MAX_SERIES)


class SentinelMetrics:
    def __init__(self, counters: Counters, max_engines: int) -> None:
        self._counters = counters
        self._max_engines = max_engines
        self._engines: OrderedDict[EngineKey, EngineSeries] = OrderedDict()
        self._named: set[str] = set()
        self._active: dict[str, Finding] = {}
        self._gauges: set[tuple[str, str]] = set()

    def note_batch(self, batch: ScoredBatch, now_ns: int) -> None:
        """Add up what was expected of a batch and what it took beyond."""
        expected = batch.scored.expected_ns
        fine = np.isfinite(expected)
        own = self._find(batch.source, now_ns)
        if not fine.any():
            return
        expected_s = float(expected[fine].sum()) / _NS_PER_S
        excess = np.maximum(batch.scored.cycle_ns[fine].astype(np.float64) - expected[fine], 0.0)
        excess_s = float(excess.sum()) / _NS_PER_S
        engine = self._name(batch.source.engine_id)
        for name, amount in ((names.STEP_EXPECTED, expected_s), (names.STEP_EXCESS, excess_s)):
            own.store.add(name, amount, {})
            self._counters.add(name, amount, engine=engine)

    def note_finding(self, finding: Finding, now_ns: int) -> None:
        """Count an opening; keep what is open."""
        own = self._find_key((finding.engine_id, finding.run), now_ns)
        self._active.pop(finding.id, None)
        if finding.state is not FindingState.CLOSED:
            self._active[finding.id] = finding
        if finding.state is FindingState.OPEN:
            own.store.add(names.FINDING_OPENED, 1, {"kind": finding.kind})
            self._counters.add(names.FINDING_OPENED, kind=finding.kind)
        self._set_active(finding, own)

    def note_model(self, fitted: Fitted, source: LedgerSource, now_ns: int) -> None:
        own = self._find(source, now_ns)
        for drift in fitted.drifts:
            kind = KINDS[drift.kind - 1] if 0 < drift.kind <= len(KINDS) else "unknown"
            own.store.set_gauge(BASELINE_RATIO, drift.ratio, {"against": drift.against, "kind": kind})

    def read(self, now_ns: int) -> Iterator[tuple[EngineKey, int, list[Reading]]]:
        """Yield the readings of every engine that is not silent, with their start."""
        for key, own in list(self._engines.items()):
            if now_ns - own.seen_ns > _SILENT_NS:
                continue
            readings = list(own.store.read_all())
            if readings:
                yield key, own.start_ns, readings

    def _set_active(self, finding: Finding, own: EngineSeries) -> None:
        key = (finding.kind, finding.subject.type)
        alike = [one for one in self._active.values() if (one.kind, one.subject.type) == key]
        labels = {"kind": key[0], "subject_type": key[1]}
        mine = sum(one.engine_id == finding.engine_id for one in alike)
        own.store.set_gauge(names.FINDING_ACTIVE, mine, labels)
        self._counters.set(names.FINDING_ACTIVE, len(alike), **labels)

    def _find(self, source: LedgerSource, now_ns: int) -> EngineSeries:
        return self._find_key((source.engine_id, source.run), now_ns)

    def _find_key(self, key: EngineKey, now_ns: int) -> EngineSeries:
        own = self._engines.get(key)
        if own is None:
            own = self._engines[key] = EngineSeries(now_ns)
            if len(self._engines) > self._max_engines:
                self._engines.popitem(last=False)
        own.seen_ns = now_ns
        self._engines.move_to_end(key)
        return own

    def _name(self, engine_id: str) -> str:
        if engine_id not in self._named and len(self._named) >= _MAX_ENGINES:
            return "other"
        self._named.add(engine_id)
        return engine_id
