# A state of a finding -> its span: one at open, from onset to opening, one at closed, from onset to close,
# linked to the first. Ids derive from finding, state and occurrence, so that what is sent twice is one. Pure.
import hashlib
from collections.abc import Iterator

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.otlp_attributes import AttributeValue, to_key_values
from otel_llmprism.exporters.otlp_spans import IS_REMOTE_KNOWN, SAMPLED
from otel_llmprism.model.findings import Evidence, Finding, FindingState, StepRef
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.semconv import finding as names
from otel_llmprism.semconv.step import SPAN_STEP, STEP_ID

MAX_EVIDENCE, MAX_STEP_LINKS = 64, 64


def derive_finding_trace_id(finding_id: str) -> bytes:
    """Return the trace of all spans of one finding."""
    digest = hashlib.sha256(b"llmprism-finding1\0" + finding_id.encode("utf-8", "replace")).digest()[:16]
    return digest if any(digest) else digest[:-1] + b"\1"


def derive_finding_span_id(finding: Finding, state: FindingState) -> bytes:
    trace_id = derive_finding_trace_id(finding.id)
    return derive_span_id(trace_id, f"{names.SPAN_FINDING} {state.value}", finding.occurrence)


def build_finding_spans(finding: Finding) -> Iterator[Span]:
    """Yield the span of an opening or a closing; an update has none."""
    if finding.state is FindingState.UPDATED:
        return
    is_closed = finding.state is FindingState.CLOSED
    end_ns = finding.closed_ns if is_closed and finding.closed_ns is not None else finding.opened_ns
    links = [_to_step_link(finding.engine_id, step) for step in finding.steps[:MAX_STEP_LINKS]]
    trace_id = derive_finding_trace_id(finding.id)
    if is_closed:
        opening = derive_finding_span_id(finding, FindingState.OPEN)
        links.insert(0, Span.Link(trace_id=trace_id, span_id=opening, flags=SAMPLED | IS_REMOTE_KNOWN))
    yield Span(
        trace_id=trace_id,
        span_id=derive_finding_span_id(finding, finding.state),
        flags=SAMPLED | IS_REMOTE_KNOWN,
        name=names.SPAN_FINDING,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=max(0, finding.onset_ns),
        end_time_unix_nano=max(0, finding.onset_ns, end_ns),
        attributes=to_key_values(describe_finding(finding)),
        events=[_to_event(evidence, finding.updated_ns) for evidence in finding.evidence[:MAX_EVIDENCE]],
        links=links,
    )


def describe_finding(finding: Finding) -> dict[str, AttributeValue]:
    """Return what spans and log events of a finding carry."""
    return {
        names.FINDING_ID: finding.id,
        names.FINDING_KIND: finding.kind,
        names.FINDING_SUBJECT_TYPE: finding.subject.type,
        names.FINDING_SUBJECT_ID: finding.subject.id,
        names.FINDING_STATE: finding.state.value,
        names.FINDING_OCCURRENCE: finding.occurrence,
        names.FINDING_SCORE: float(finding.score),
        names.FINDING_CONFIDENCE: float(finding.confidence),
        names.FINDING_EXCESS_S: float(finding.excess_s),
        names.FINDING_LOST_REQUEST_S: float(finding.lost_request_s),
        names.FINDING_SUMMARY: finding.summary,
    }


def read_run(run: str) -> bytes:
    """Return a run's bytes; of a text that is no hex, nothing."""
    try:
        return bytes.fromhex(run)
    except ValueError:
        return b""


def _to_event(evidence: Evidence, time_ns: int) -> Span.Event:
    attributes: dict[str, AttributeValue] = {
        names.EVIDENCE_SIGNAL: evidence.signal,
        names.EVIDENCE_OBSERVED: float(evidence.observed),
        names.EVIDENCE_EXPECTED: float(evidence.expected),
        names.EVIDENCE_UNIT: evidence.unit,
    }
    if evidence.detail:
        attributes[names.EVIDENCE_DETAIL] = evidence.detail
    return Span.Event(
        time_unix_nano=max(0, time_ns), name=names.EVENT_EVIDENCE, attributes=to_key_values(attributes)
    )


def _to_step_link(engine_id: str, step: StepRef) -> Span.Link:
    trace_id = derive_step_trace_id(engine_id, read_run(step.run), step.step)
    return Span.Link(
        trace_id=trace_id,
        span_id=derive_span_id(trace_id, SPAN_STEP),
        flags=SAMPLED | IS_REMOTE_KNOWN,
        attributes=to_key_values({STEP_ID: step.step, names.FINDING_STEP: step.why}),
    )
