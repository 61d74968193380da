# The spans of the steps that were kept when they were scheduled, within the byte budget, with links to
# the sampled requests in them; and what these requests and the metrics must know of it.
from collections.abc import Iterator

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.otlp_metrics import Exemplar
from otel_llmprism.exporters.step_spans import RequestLink, StepOrigin, build_step_spans
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.model.members import JOINED, RunningState, StepMembers
from otel_llmprism.model.steps import UNKNOWN, LedgerTables
from otel_llmprism.native.ring_records import Kept
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.semconv.step import KEPT, SPAN_STEP
from otel_llmprism.service.exporter_process.byte_budget import ByteBudget
from otel_llmprism.service.exporter_process.engine_metrics import EngineMetrics
from otel_llmprism.service.exporter_process.request_book import RequestBook
from otel_llmprism.service.exporter_process.step_links import MAX_LINKS, choose_linked

_NO_LIMIT = 1 << 30
_SPAN_FRAME_BYTES = 4  # tag and length of a span in its request


class KeptStepSpans:
    def __init__(
        self, book: RequestBook, metrics: EngineMetrics, budget: ByteBudget, counters: Counters
    ) -> None:
        self._book = book
        self._metrics = metrics
        self._budget = budget
        self._counters = counters

    def build_spans(self, tables: LedgerTables, origin: StepOrigin) -> Iterator[tuple[str, list[Span]]]:
        """Yield why a step was kept, and its spans, for each kept step that the budget allows."""
        members, steps = tables.members, tables.steps
        state, applied = RunningState(tables.running), 0
        for row in np.flatnonzero(steps.kept).tolist():
            first, last = np.searchsorted(members.step_row, [row, row + 1]).tolist()
            state.apply(members, slice(applied, last))
            applied = last
            changes = slice(first, last)
            here = state.list_members(int(steps.lane[row]), members, changes)
            joined = members.handle[changes][members.change[changes] == JOINED]
            yield from self._build_step(tables, row, origin, here, set(joined.tolist()))

    def _build_step(
        self, tables: LedgerTables, row: int, origin: StepOrigin, members: StepMembers, joined: set[int]
    ) -> Iterator[tuple[str, list[Span]]]:
        kept = int(tables.steps.kept[row])
        trace_id = derive_step_trace_id(origin.engine_id, origin.run, int(tables.steps.step[row]))
        is_unbounded = kept == Kept.ALL
        rows, omitted = choose_linked(
            members,
            self._book.is_sampled,
            (joined, self._list_ended(tables, row, members)),
            seed=int.from_bytes(trace_id[:8], "big"),
            limit=_NO_LIMIT if is_unbounded else MAX_LINKS,
        )
        links = list(self._build_links(members, rows))
        spans = list(build_step_spans(tables, row, origin, links, links_omitted=omitted))
        size = sum(span.ByteSize() + _SPAN_FRAME_BYTES for span in spans)
        if not is_unbounded and not self._budget.try_draw(size, origin.anchor.monotonic_ns):
            self._counters.add(LOST, len(spans), stage="step_spans", cause="byte_budget")
            return
        self._note_exported(tables, row, origin, members)
        yield KEPT[kept - 1], spans

    def _note_exported(
        self, tables: LedgerTables, row: int, origin: StepOrigin, members: StepMembers
    ) -> None:
        steps = tables.steps
        step_id, cycle = int(steps.step[row]), steps.cycle_ns[row]
        cycle_ns = 0 if cycle == UNKNOWN else int(cycle)
        for handle in members.handle.tolist():
            request = self._book.find(handle)
            if request is not None and request.life.is_sampled:
                request.kept_steps.add(step_id, cycle_ns)
        if cycle != UNKNOWN:
            trace_id = derive_step_trace_id(origin.engine_id, origin.run, step_id)
            at_ns = origin.to_realtime_ns(int(steps.output_ready_ns[row]))
            exemplar = Exemplar(cycle_ns / 1e9, at_ns, trace_id, derive_span_id(trace_id, SPAN_STEP))
            self._metrics.observe_step_exemplar(int(steps.kind[row]), exemplar)

    def _list_ended(self, tables: LedgerTables, row: int, members: StepMembers) -> set[int]:
        """Return the members that ended before the next step's output: this was their last."""
        ready = tables.steps.output_ready_ns
        if ready[row] == UNKNOWN:
            return set()
        until_ns = int(ready[row + 1]) if row + 1 < len(ready) else int(UNKNOWN)
        ended = set()
        for handle in members.handle.tolist():
            request = self._book.find(handle)
            if request is not None and int(ready[row]) <= request.life.left_ns < until_ns:
                ended.add(handle)
        return ended

    def _build_links(self, members: StepMembers, rows: list[int]) -> Iterator[RequestLink]:
        for row in rows:
            request = self._book.find(int(members.handle[row]))
            if request is not None:
                yield RequestLink(
                    request.life.trace_id,
                    request.life.span_id,
                    request.life.request_id,
                    int(members.tokens[row]),
                    bool(members.is_prefill[row]),
                )
