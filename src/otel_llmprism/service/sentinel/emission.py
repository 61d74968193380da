# News of the core -> OTLP requests under the engines' own resources: finding spans and log events, slow steps
# as spans, metrics. Knows no transport.
from collections import defaultdict
from collections.abc import Iterator, Sequence

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.finding_logs import Event, encode_events, to_event
from otel_llmprism.exporters.finding_spans import build_finding_spans
from otel_llmprism.exporters.otlp_metrics import encode_metrics
from otel_llmprism.exporters.otlp_spans import encode_spans
from otel_llmprism.model.findings import Finding
from otel_llmprism.model.signals import Signal
from otel_llmprism.receivers.ledger import LedgerSource
from otel_llmprism.semconv import baseline as baseline_names
from otel_llmprism.semconv.step import KINDS, STEP_KIND
from otel_llmprism.service.sentinel.core import SentinelCore
from otel_llmprism.service.sentinel.metrics import EngineKey, SentinelMetrics
from otel_llmprism.service.sentinel.model_book import DRIFT_LIMIT, Fitted
from otel_llmprism.service.sentinel.news import News
from otel_llmprism.service.sentinel.request_watch import RequestWatch
from otel_llmprism.service.sentinel.resource_book import ResourceBook
from otel_llmprism.service.sentinel.step_spans import StepSpans

Parcel = tuple[Signal, bytes]


class Emission:
    """One thread."""

    def __init__(
        self,
        core: SentinelCore,
        resources: ResourceBook,
        steps: StepSpans,
        metrics: SentinelMetrics,
        *,
        version: str,
    ) -> None:
        self._core = core
        self._resources = resources
        self._steps = steps
        self._metrics = metrics
        self._version = version

    def build(self, news: News, now_ns: int, told_findings: Sequence[Finding]) -> Iterator[Parcel]:
        """Yield the requests that one News makes; findings that are not told are only counted."""
        spans: dict[EngineKey, list[Span]] = defaultdict(list)
        events: dict[EngineKey, list[Event]] = defaultdict(list)
        for batch in news.batches:
            self._metrics.note_batch(batch, now_ns)
            key = (batch.source.engine_id, batch.source.run)
            for kept in self._steps.keep_slow(batch, self._find_requests(key), now_ns):
                spans[key] += kept.spans
        for finding in news.findings:
            self._metrics.note_finding(finding, now_ns)
        for finding in told_findings:
            self._add_finding(finding, spans, events, now_ns)
        for fitted in news.fitted:
            self._add_model(fitted, events, now_ns)
        for key, own in spans.items():
            yield Signal.TRACES, encode_spans(self._resources.find(*key), own, self._version)
        for key, told in events.items():
            yield Signal.LOGS, encode_events(self._resources.find(*key), told, self._version)

    def build_metrics(self, now_ns: int) -> Iterator[Parcel]:
        """Yield one request an engine."""
        for key, start_ns, readings in self._metrics.read(now_ns):
            resource = self._resources.find(*key)
            yield Signal.METRICS, encode_metrics(resource, readings, start_ns, now_ns, self._version)

    def _add_finding(
        self,
        finding: Finding,
        spans: dict[EngineKey, list[Span]],
        events: dict[EngineKey, list[Event]],
        now_ns: int,
    ) -> None:
        key = (finding.engine_id, finding.run)
        events[key].append(to_event(finding))
        for span in build_finding_spans(finding):
            # What was found is worth more than any step: it draws on the budget and does not ask.
            self._steps.draw(span.ByteSize(), now_ns)
            spans[key].append(span)
        for kept in self._steps.keep_finding(finding, self._find_requests(key), now_ns):
            spans[key] += kept.spans

    def _add_model(self, fitted: Fitted, events: dict[EngineKey, list[Event]], now_ns: int) -> None:
        source = self._find_source(fitted.engine_id)
        if source is None:
            return
        self._metrics.note_model(fitted, source, now_ns)
        told = events[(source.engine_id, source.run)]
        told.append(_to_fitted_event(fitted, now_ns))
        told += _list_drifts(fitted, now_ns)

    def _find_requests(self, key: EngineKey) -> RequestWatch | None:
        for watch in self._core.watches.list_watches():
            if (watch.source.engine_id, watch.source.run) == key:
                return watch.requests
        return None

    def _find_source(self, engine_id: str) -> LedgerSource | None:
        sources = (watch.source for watch in self._core.watches.list_watches())
        return next((source for source in sources if source.engine_id == engine_id), None)


def _to_fitted_event(fitted: Fitted, now_ns: int) -> Event:
    return Event(
        baseline_names.EVENT_BASELINE_FITTED,
        now_ns,
        f"expected time was fitted to {fitted.trained_steps} steps",
        {
            baseline_names.BASELINE_VERSION: fitted.version,
            baseline_names.BASELINE_STEPS: fitted.trained_steps,
        },
    )


def _list_drifts(fitted: Fitted, now_ns: int) -> Iterator[Event]:
    for drift in fitted.drifts:
        if abs(drift.ratio - 1.0) <= DRIFT_LIMIT:
            continue
        kind = KINDS[drift.kind - 1] if 0 < drift.kind <= len(KINDS) else "unknown"
        whom = "the frozen reference" if drift.against == "reference" else "a peer"
        yield Event(
            baseline_names.EVENT_BASELINE_DRIFT,
            now_ns,
            f"{kind} steps are now expected to take {drift.ratio:.2f} times what {whom} expects",
            {
                baseline_names.BASELINE_VERSION: drift.version,
                baseline_names.BASELINE_AGAINST: drift.against,
                baseline_names.BASELINE_RATIO: drift.ratio,
                STEP_KIND: kind,
            },
            is_warning=True,
        )
