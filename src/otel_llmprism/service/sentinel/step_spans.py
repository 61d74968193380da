# Slow steps, and those that a finding names, out of the ledger -> spans with what was expected of them. Never
# one whose ledger row says it was kept: the exporter has sent that one. Bounded by rate and bytes.
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.finding_spans import read_run
from otel_llmprism.exporters.otlp_attributes import AttributeValue, to_key_values
from otel_llmprism.exporters.step_spans import RequestLink, StepOrigin, build_step_spans
from otel_llmprism.model.findings import Finding
from otel_llmprism.model.ids import derive_step_trace_id
from otel_llmprism.model.members import StepMembers
from otel_llmprism.model.work import ScoredTable
from otel_llmprism.native.ring_codes import Kept
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerSource
from otel_llmprism.semconv import step as names
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.exporter_process.byte_budget import ByteBudget
from otel_llmprism.service.exporter_process.step_links import choose_linked
from otel_llmprism.service.ledger_traces import list_members_at
from otel_llmprism.service.sentinel.kept_rate import KeptRate
from otel_llmprism.service.sentinel.news import ScoredBatch
from otel_llmprism.service.sentinel.recent_ledger import RecentLedger
from otel_llmprism.service.sentinel.request_watch import RequestWatch
from otel_llmprism.service.sentinel.work import Rows

_BURST_S = 10.0
_MAX_SENT = 20_000
_NS_PER_S = 1e9
ANOMALOUS, FINDING = names.KEPT[Kept.ANOMALOUS - 1], names.KEPT[Kept.FINDING - 1]


@dataclass(frozen=True, slots=True)
class KeptStep:
    """One step's spans; `is_slow` where its own limit flagged it."""

    source: LedgerSource
    spans: list[Span]


class StepSpans:
    """Knows which steps were sent; one thread."""

    def __init__(self, steps_per_s: float, bytes_per_s: float, counters: Counters) -> None:
        self._steps_per_s = steps_per_s
        self._counters = counters
        self._budget = ByteBudget(bytes_per_s, _BURST_S, 0)
        self._rates: OrderedDict[str, KeptRate] = OrderedDict()
        self._sent: OrderedDict[tuple[str, str, int], None] = OrderedDict()
        self.recent = RecentLedger()

    def keep_slow(self, batch: ScoredBatch, requests: RequestWatch | None, now_ns: int) -> Iterator[KeptStep]:
        """Yield the flagged steps of a batch that may be spans."""
        self.recent.add(batch)
        flagged = np.flatnonzero(batch.scored.is_flagged)
        if not len(flagged):
            return
        allowed = flagged[_may_be_span(batch, batch.rows[flagged])]
        rate = self._find_rate(batch.source.engine_id)
        chosen = rate.choose(batch.scored, allowed, now_ns)
        if skipped := len(allowed) - len(chosen):
            self._counters.add(LOST, skipped, stage="slow_steps", cause="rate")
        for at in chosen.tolist():
            yield from self._build(batch, int(batch.rows[at]), ANOMALOUS, requests, now_ns)

    def keep_finding(
        self, finding: Finding, requests: RequestWatch | None, now_ns: int
    ) -> Iterator[KeptStep]:
        """Yield the steps that a finding names, as far as they are still here and were not sent."""
        for wanted in finding.steps:
            found = self.recent.find(finding.engine_id, wanted.run, wanted.step)
            if found is None:
                self._counters.add(LOST, stage="finding_steps", cause="gone")
                continue
            batch, row = found
            if bool(_may_be_span(batch, np.array([row]))[0]):
                yield from self._build(batch, row, FINDING, requests, now_ns)

    def draw(self, size: int, now_ns: int) -> None:
        """Take bytes of the budget for what goes in any case."""
        self._budget.draw(size, now_ns)

    def _build(
        self, batch: ScoredBatch, row: int, kept: str, requests: RequestWatch | None, now_ns: int
    ) -> Iterator[KeptStep]:
        source, step = batch.source, int(batch.tables.steps.step[row])
        key = (source.engine_id, source.run, step)
        if key in self._sent:
            return
        origin = StepOrigin(source.engine_id, read_run(source.run), batch.anchor)
        members = list_members_at(batch.batch, row)
        links, omitted = _link(members, requests, derive_step_trace_id(origin.engine_id, origin.run, step))
        spans = list(build_step_spans(batch.tables, row, origin, links, links_omitted=omitted, kept=kept))
        spans[0].attributes.extend(to_key_values(describe_score(batch.scored, step)))
        if not self._budget.try_draw(sum(span.ByteSize() for span in spans), now_ns):
            self._counters.add(LOST, len(spans), stage="slow_steps", cause="byte_budget")
            return
        self._sent[key] = None
        if len(self._sent) > _MAX_SENT:
            self._sent.popitem(last=False)
        if requests is not None and kept == ANOMALOUS:
            requests.note_slow_step(members.handle.tolist(), step)
        yield KeptStep(source, spans)

    def _find_rate(self, engine_id: str) -> KeptRate:
        rate = self._rates.get(engine_id)
        if rate is None:
            rate = self._rates[engine_id] = KeptRate(self._steps_per_s)
            if len(self._rates) > 1000:
                self._rates.popitem(last=False)
        return rate


def describe_score(scored: ScoredTable, step: int) -> dict[str, AttributeValue]:
    """Return what a step's span says about the expected time; nothing where nothing was expected."""
    rows = np.flatnonzero(scored.step == np.uint64(step))
    if not len(rows) or not np.isfinite(scored.expected_ns[rows[0]]):
        return {}
    row = rows[0]
    return {
        names.STEP_EXPECTED_S: float(scored.expected_ns[row]) / _NS_PER_S,
        names.STEP_RESIDUAL: float(scored.residual[row]),
        names.STEP_ANOMALOUS: bool(scored.is_flagged[row]),
    }


def _may_be_span(batch: ScoredBatch, rows: Rows) -> "np.typing.NDArray[np.bool_]":
    """Tell which ledger rows nobody kept, in an engine that sends step spans at all."""
    steps = batch.tables.steps
    # A probability of 0 is OTEL_LLMPRISM_STEPS=none; `all` keeps every row.
    may: np.typing.NDArray[np.bool_] = (steps.kept[rows] == Kept.NO) & (steps.kept_probability[rows] > 0)
    return may


def _link(
    members: StepMembers, requests: RequestWatch | None, trace_id: bytes
) -> tuple[list[RequestLink], int]:
    if requests is None:
        return [], 0

    def is_sampled(handle: int) -> bool:
        live = requests.find(handle)
        return live is not None and live.life.is_sampled

    rows, omitted = choose_linked(members, is_sampled, ((), ()), seed=int.from_bytes(trace_id[:8], "big"))
    links = []
    for row in rows:
        live = requests.find(int(members.handle[row]))
        if live is not None:
            tokens, is_prefill = int(members.tokens[row]), bool(members.is_prefill[row])
            life = live.life
            links.append(RequestLink(life.trace_id, life.span_id, life.request_id, tokens, is_prefill))
    return links, omitted
