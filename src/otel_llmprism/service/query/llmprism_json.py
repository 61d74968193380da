# Stored spans -> the JSON of our own API: nanosecond times as text (JavaScript rounds them otherwise),
# attributes with their types kept, links with their attributes and the names of their targets.
import base64
import math
from collections.abc import Mapping
from typing import Any

from otel_llmprism.exporters.store.decode import Attributes, LinkView, Value
from otel_llmprism.exporters.store.stored import (
    BackLink,
    SpanRef,
    StoredEvent,
    StoredSpan,
    StoredTrace,
    TraceSummary,
)
from otel_llmprism.exporters.store.tag_match import ERROR_STATUS, KIND_NAMES

Json = dict[str, Any]
Names = Mapping[tuple[bytes, bytes], SpanRef]

_MAX_SAFE_INTEGER = (1 << 53) - 1
_STATUS_NAMES = {1: "ok", ERROR_STATUS: "error"}


def to_summary(summary: TraceSummary) -> Json:
    """Return one line of a search result."""
    return {
        "traceId": summary.root.trace_id.hex(),
        "root": to_ref(summary.root),
        "startNs": str(summary.start_ns),
        "durationNs": summary.duration_ns,
        "services": list(summary.services),
        "spanCount": summary.spans,
        "errorCount": summary.errors,
        "isCut": summary.is_cut,
    }


def to_trace(trace: StoredTrace, names: Names) -> Json:
    """Return a whole trace, links resolved by `names`."""
    return {
        "traceId": trace.trace_id.hex(),
        "isCut": trace.is_cut,
        "spans": [_to_span(span, names) for span in trace.spans],
    }


def to_ref(ref: SpanRef) -> Json:
    return {
        "traceId": ref.trace_id.hex(),
        "spanId": ref.span_id.hex(),
        "service": ref.service,
        "name": ref.name,
        "startNs": str(ref.start_ns),
        "durationNs": ref.duration_ns,
    }


def to_back_link(back: BackLink) -> Json:
    """Return the span that links here, with the attributes of its link."""
    return {**to_ref(back.source), "attributes": to_attributes(back.link.attributes)}


def to_link(link: LinkView, names: Names) -> Json:
    """Return a link; `target` is null when the store does not hold the span (any more, or yet)."""
    target = names.get((link.trace_id, link.span_id))
    return {
        "traceId": link.trace_id.hex(),
        "spanId": link.span_id.hex(),
        "target": None if target is None else to_ref(target),
        "attributes": to_attributes(link.attributes),
    }


def to_event(event: StoredEvent) -> Json:
    """Return one of llmprism's own log events."""
    return {
        "timeNs": str(event.time_ns),
        "name": event.name,
        "service": event.service,
        "traceId": event.trace_id.hex() if any(event.trace_id) else None,
        "spanId": event.span_id.hex() if any(event.span_id) else None,
        "attributes": to_attributes(event.attributes),
    }


def to_attributes(attributes: Attributes) -> Json:
    """Return attributes as JSON keeps them: what it cannot hold exactly becomes text."""
    return {key: _to_value(value) for key, value in attributes.items()}


def _to_span(span: StoredSpan, names: Names) -> Json:
    detail = span.detail
    return {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_id.hex() or None,
        "service": span.service,
        "name": span.name,
        "kind": KIND_NAMES[span.kind] if 0 <= span.kind < len(KIND_NAMES) else "",
        "startNs": str(span.start_ns),
        "durationNs": span.duration_ns,
        "status": _STATUS_NAMES.get(span.status, "unset"),
        "statusMessage": detail.status_message,
        "traceState": detail.trace_state,
        "attributes": to_attributes(detail.attributes),
        "events": [
            {
                "timeNs": str(event.time_ns),
                "name": event.name,
                "attributes": to_attributes(event.attributes),
            }
            for event in detail.events
        ],
        "links": [to_link(link, names) for link in detail.links],
        "resource": to_attributes(span.resource),
        "scope": {"name": span.scope.name, "version": span.scope.version},
    }


def _to_value(value: Value) -> object:
    if isinstance(value, list):
        return [_to_value(item) for item in value]
    if isinstance(value, dict):
        return to_attributes(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, int) and abs(value) > _MAX_SAFE_INTEGER:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
