# The whole of what an engine's ledger becomes, but for the ledger itself: tables in, spans and metrics
# out. Pure but for its state: time comes in, nothing is sent.
from collections.abc import Iterable
from dataclasses import dataclass, field

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.request_spans import RequestTexts, build_request_spans
from otel_llmprism.exporters.step_spans import StepOrigin
from otel_llmprism.model.member_sums import sum_request_tokens
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.service.exporter_process.engine_metrics import EngineMetrics
from otel_llmprism.service.exporter_process.kept_step_spans import KeptStepSpans
from otel_llmprism.service.exporter_process.request_book import (
    HOLD_NS,
    LiveRequest,
    RequestBook,
)


@dataclass(slots=True)
class Outgoing:
    """Spans by why they are kept; requests under the empty word."""

    spans: dict[str, list[Span]] = field(default_factory=dict)

    def add(self, kept: str, spans: Iterable[Span]) -> None:
        self.spans.setdefault(kept, []).extend(spans)


class EngineTelemetry:
    """One engine run. Feed it the ledger's tables once and in order."""

    def __init__(
        self, texts: RequestTexts, metrics: EngineMetrics, book: RequestBook, steps: KeptStepSpans
    ) -> None:
        self._texts = texts
        self._metrics = metrics
        self._steps = steps
        self._book = book

    def consume(self, tables: LedgerTables, origin: StepOrigin) -> Outgoing:
        """Take the next tables; give the spans of their kept steps."""
        outgoing = Outgoing()
        self._book.note_tables(tables)
        self._metrics.observe_steps(tables)
        self._sum_up(tables)
        for kept, spans in self._steps.build_spans(tables, origin):
            outgoing.add(kept, spans)
        return outgoing

    def release(self, origin: StepOrigin, hold_ns: int = HOLD_NS) -> Outgoing:
        """Give the spans of requests whose end is at least `hold_ns` ago."""
        return self._end_requests(self._book.release(origin.anchor.monotonic_ns, hold_ns), origin)

    def finish(self, origin: StepOrigin) -> Outgoing:
        """Give the spans of all requests that are left: no more tables will come."""
        return self._end_requests(self._book.release_all(origin.anchor.monotonic_ns), origin)

    def count_requests(self) -> tuple[int, int]:
        """Return how many requests run and wait, by what was told of each."""
        return self._book.count_requests()

    def _sum_up(self, tables: LedgerTables) -> None:
        sums = sum_request_tokens(tables.steps.lane, tables.members, tables.running)
        columns = (sums.handle, sums.steps, sums.prefill_tokens, sums.decode_tokens)
        for handle, steps, prefill_tokens, decode_tokens in zip(*(c.tolist() for c in columns), strict=True):
            request = self._book.find(handle)
            if request is not None:
                request.life.steps += steps
                request.life.prefill_tokens += prefill_tokens
                request.life.decode_tokens += decode_tokens

    def _end_requests(self, requests: Iterable[LiveRequest], origin: StepOrigin) -> Outgoing:
        outgoing = Outgoing()
        for request in requests:
            ended = request.life.to_ended(origin.anchor.monotonic_ns)
            at_ns = origin.to_realtime_ns(ended.ended_ns)
            self._metrics.observe_request(ended, at_ns, is_exported=request.life.is_sampled)
            if request.life.is_sampled:
                links = request.kept_steps.choose()
                outgoing.add("", build_request_spans(ended, origin, self._texts, links))
        return outgoing
