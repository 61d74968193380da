# Ledger tables and ended requests -> the metrics of the contract. Reads the ledger, never sampled
# spans; exemplars come from those that know a trace was exported.
from collections.abc import Mapping

import numpy as np

from otel_llmprism.exporters.otlp_metrics import Exemplar
from otel_llmprism.exporters.request_spans import (
    FINISH_REASONS,
    EndedRequest,
    RequestTexts,
    describe_requests,
)
from otel_llmprism.model.steps import U64, UNKNOWN, LedgerTables
from otel_llmprism.native.ring_records import StepKind
from otel_llmprism.semconv import metric as names
from otel_llmprism.semconv.step import KINDS
from otel_llmprism.service.exporter_process.metric_store import MetricStore

_NS_PER_S = 1e9


class EngineMetrics:
    def __init__(self, store: MetricStore, texts: RequestTexts) -> None:
        self._store = store
        self._request_labels = describe_requests(texts)
        self._has_steps = self._is_training = False

    def observe_steps(self, tables: LedgerTables) -> None:
        """Book every step of `tables`; dummy runs are never charted."""
        steps = tables.steps
        if not len(steps):
            return
        for kind in np.unique(steps.kind).tolist():
            if kind in {StepKind.UNKNOWN, StepKind.DUMMY}:
                continue
            rows = steps.kind == kind
            labels = label_kind(kind)
            self._store.observe(names.STEP_CYCLE, _to_seconds(steps.cycle_ns[rows]), labels)
            self._store.observe(names.STEP_GAP, _to_seconds(steps.gap_ns[rows]), labels)
        self._has_steps = True
        self._is_training = bool((steps.kind == StepKind.TRAIN).any())
        # Iterations of training and dummy batches know no requests and no cache.
        serving = np.flatnonzero(~np.isin(steps.kind, (StepKind.TRAIN, StepKind.DUMMY)))
        if not len(serving):
            return
        for phase, tokens in (("prefill", steps.prefill_tokens), ("decode", steps.decode_tokens)):
            self._store.add(names.STEP_TOKENS, int(tokens[serving].sum(dtype=np.int64)), {"phase": phase})
        last = int(serving[-1])
        self.set_requests(int(steps.running[last]), int(steps.waiting[last]))
        self._store.set_gauge(names.ENGINE_KV_USAGE, float(steps.kv_usage[last]), {})

    def take_has_steps(self) -> bool:
        """Tell whether steps came since the last call: if not, the gauges are stale, unless it trains."""
        has_steps, self._has_steps = self._has_steps, False
        return has_steps or self._is_training

    def set_requests(self, running: int, waiting: int) -> None:
        self._store.set_gauge(names.ENGINE_REQUESTS, running, {"state": "running"})
        self._store.set_gauge(names.ENGINE_REQUESTS, waiting, {"state": "waiting"})

    def observe_step_exemplar(self, kind: int, exemplar: Exemplar) -> None:
        if kind not in {StepKind.UNKNOWN, StepKind.DUMMY}:
            self._store.attach_exemplar(names.STEP_CYCLE, exemplar, label_kind(kind))

    def observe_request(self, request: EndedRequest, ended_realtime_ns: int, *, is_exported: bool) -> None:
        """Book one ended request; only an exported one gives exemplars."""
        duration_s = (request.ended_ns - request.arrival_ns) / _NS_PER_S
        failed = {"error.type": FINISH_REASONS[request.finish] or "unknown"} if request.is_error else {}
        values: tuple[tuple[str, float | None, Mapping[str, str]], ...] = (
            (names.REQUEST_DURATION, duration_s, failed),
            (names.TIME_TO_FIRST_TOKEN, request.ttft_s, {}),
            (names.TIME_PER_OUTPUT_TOKEN, request.tpot_s, {}),
        )
        for name, value, extra in values:
            if value is None:
                continue
            labels = {**self._request_labels, **extra}
            self._store.observe(name, np.array([value]), labels)
            if is_exported:
                exemplar = Exemplar(value, ended_realtime_ns, request.trace_id, request.span_id)
                self._store.attach_exemplar(name, exemplar, labels)


def label_kind(kind: int) -> Mapping[str, str]:
    return {"kind": KINDS[kind - 1]}


def _to_seconds(durations_ns: U64) -> "np.typing.NDArray[np.float64]":
    return np.asarray(durations_ns[durations_ns != UNKNOWN], dtype=np.float64) / _NS_PER_S
