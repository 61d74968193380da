# Stored traces -> the JSON of Jaeger's query API (shapes of its UI model): microseconds, typed tags,
# references, logs, processes. Our links with their attributes ride along under "llmprism".
import base64
import math
from collections.abc import Iterable, Mapping
from typing import Any

from otel_llmprism.exporters.store.decode import Attributes, Value
from otel_llmprism.exporters.store.stored import StoredSpan, StoredTrace
from otel_llmprism.exporters.store.tag_match import ERROR_STATUS, KIND_NAMES, to_text
from otel_llmprism.semconv.resource import SERVICE_NAME

Json = dict[str, Any]

_MAX_SAFE_INTEGER = (1 << 53) - 1  # beyond it JavaScript rounds, so Jaeger sends text
_STATUS_NAMES = {1: "OK", ERROR_STATUS: "ERROR"}


def wrap(data: object, total: int = 0, limit: int = 0, errors: Iterable[Json] | None = None) -> Json:
    """Return the envelope that every answer of Jaeger's has."""
    listed = list(errors or ())
    return {"data": data, "total": total, "limit": limit, "offset": 0, "errors": listed or None}


def to_jaeger_trace(trace: StoredTrace) -> Json:
    """Return one trace; equal resources become one process."""
    processes: dict[str, Json] = {}
    names: dict[int, str] = {}
    spans = []
    for span in trace.spans:
        name = names.get(id(span.resource))
        if name is None:
            name = names[id(span.resource)] = _find_process(processes, _to_process(span))
        spans.append(_to_span(span, name))
    warnings = ["this trace has more spans than one answer may hold"] if trace.is_cut else None
    return {
        "traceID": trace.trace_id.hex(),
        "spans": spans,
        "processes": processes,
        "warnings": warnings,
    }


def _find_process(processes: dict[str, Json], process: Json) -> str:
    for name, known in processes.items():
        if known == process:
            return name
    name = f"p{len(processes) + 1}"
    processes[name] = process
    return name


def _to_process(span: StoredSpan) -> Json:
    tags = {key: value for key, value in span.resource.items() if key != SERVICE_NAME}
    return {"serviceName": span.service, "tags": _to_tags(tags)}


def _to_span(span: StoredSpan, process: str) -> Json:
    links = [link for link in span.detail.links if len(link.trace_id) == 16 and len(link.span_id) == 8]
    converted: Json = {
        "traceID": span.trace_id.hex(),
        "spanID": span.span_id.hex(),
        "operationName": span.name,
        "references": [
            *([_to_reference("CHILD_OF", span.trace_id, span.parent_id)] if span.parent_id else []),
            *(_to_reference("FOLLOWS_FROM", link.trace_id, link.span_id) for link in links),
        ],
        "startTime": span.start_ns // 1000,
        "duration": span.duration_ns // 1000,
        "tags": [*_to_tags(span.detail.attributes), *_to_tags(_list_own_tags(span))],
        "logs": [
            {
                "timestamp": event.time_ns // 1000,
                "fields": [*_to_tags({"event": event.name}), *_to_tags(event.attributes)],
            }
            for event in span.detail.events
        ],
        "processID": process,
        "warnings": None,
    }
    if links:
        converted["llmprism"] = {
            "links": [
                {
                    "traceID": link.trace_id.hex(),
                    "spanID": link.span_id.hex(),
                    "tags": _to_tags(link.attributes),
                }
                for link in links
            ]
        }
    return converted


def _to_reference(kind: str, trace_id: bytes, span_id: bytes) -> Json:
    return {"refType": kind, "traceID": trace_id.hex(), "spanID": span_id.hex()}


def _list_own_tags(span: StoredSpan) -> dict[str, Value]:
    """What OTLP has as fields and Jaeger as tags, by the names that the specification gives them."""
    own: dict[str, Value] = {}
    if span.scope.name:
        own["otel.scope.name"] = span.scope.name
    if span.scope.version:
        own["otel.scope.version"] = span.scope.version
    if 0 < span.kind < len(KIND_NAMES):
        own["span.kind"] = KIND_NAMES[span.kind]
    if span.status in _STATUS_NAMES:
        own["otel.status_code"] = _STATUS_NAMES[span.status]
    if span.status == ERROR_STATUS:
        own["error"] = True
    if span.detail.status_message:
        own["otel.status_description"] = span.detail.status_message
    if span.detail.trace_state:
        own["w3c.tracestate"] = span.detail.trace_state
    return {key: value for key, value in own.items() if key not in span.detail.attributes}


def _to_tags(attributes: Attributes | Mapping[str, Value]) -> list[Json]:
    return [_to_tag(key, value) for key, value in attributes.items()]


def _to_tag(key: str, value: Value) -> Json:
    if isinstance(value, bool):
        return {"key": key, "type": "bool", "value": value}
    if isinstance(value, int):
        is_safe = abs(value) <= _MAX_SAFE_INTEGER
        return {"key": key, "type": "int64", "value": value if is_safe else str(value)}
    if isinstance(value, float):
        return {"key": key, "type": "float64", "value": value if math.isfinite(value) else str(value)}
    if isinstance(value, bytes):
        return {"key": key, "type": "binary", "value": base64.b64encode(value).decode()}
    return {"key": key, "type": "string", "value": to_text(value)}
