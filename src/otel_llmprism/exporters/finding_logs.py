# States of findings, and what else the sentinel has to say -> log events of an ordinary scope, with severity
# and a sentence as body. Pure.
from collections.abc import Iterable
from dataclasses import dataclass

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber

from otel_llmprism.exporters.finding_spans import (
    derive_finding_span_id,
    derive_finding_trace_id,
    describe_finding,
)
from otel_llmprism.exporters.otlp_attributes import Attributes, build_scope, to_key_values, to_resource
from otel_llmprism.exporters.otlp_spans import SAMPLED, SCOPE
from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.semconv.finding import SPAN_FINDING


@dataclass(frozen=True, slots=True)
class Event:
    """One log event; `trace_id` and `span_id` are empty where it belongs to none."""

    name: str
    time_ns: int
    text: str
    attributes: Attributes
    is_warning: bool = False
    trace_id: bytes = b""
    span_id: bytes = b""


def to_event(finding: Finding) -> Event:
    """Return the event of one state of a finding, in the trace of its spans."""
    return Event(
        name=SPAN_FINDING,
        time_ns=finding.updated_ns,
        text=finding.summary,
        attributes=describe_finding(finding),
        is_warning=finding.state is FindingState.OPEN,
        trace_id=derive_finding_trace_id(finding.id),
        span_id=derive_finding_span_id(finding, FindingState.OPEN),
    )


def encode_events(resource: Attributes, events: Iterable[Event], version: str = "") -> bytes:
    """Return one request with `events` in order."""
    request = ExportLogsServiceRequest()
    resource_logs = request.resource_logs.add()
    resource_logs.resource.CopyFrom(to_resource(resource))
    scope_logs = resource_logs.scope_logs.add()
    scope_logs.scope.CopyFrom(build_scope(SCOPE, version))
    scope_logs.log_records.extend(_to_record(event) for event in events)
    encoded: bytes = request.SerializeToString()
    return encoded


def _to_record(event: Event) -> LogRecord:
    is_warning = event.is_warning
    severity = SeverityNumber.SEVERITY_NUMBER_WARN if is_warning else SeverityNumber.SEVERITY_NUMBER_INFO
    return LogRecord(
        time_unix_nano=max(0, event.time_ns),
        observed_time_unix_nano=max(0, event.time_ns),
        severity_number=severity,
        severity_text="WARN" if is_warning else "INFO",
        event_name=event.name,
        body=AnyValue(string_value=event.text),
        attributes=to_key_values(event.attributes),
        flags=SAMPLED if event.trace_id else 0,
        trace_id=event.trace_id,
        span_id=event.span_id,
    )
