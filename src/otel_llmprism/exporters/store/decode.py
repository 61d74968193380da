# Stored bytes -> what a person looks at: spans with typed attributes, events and links, resources and
# scopes. Reads only; nothing decoded here is ever encoded again.
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.store.mend_text import replace_bad_text

Value = None | str | bool | int | float | bytes | list["Value"] | dict[str, "Value"]
Attributes = Mapping[str, Value]

_MAX_DEPTH = 32  # deeper values are shown as None; the stored bytes keep them
_MessageT = TypeVar("_MessageT", bound=Message)
_KINDS: dict[str, type[Message]] = {
    "span": Span,
    "resource": Resource,
    "scope": InstrumentationScope,
    "log": LogRecord,
}


@dataclass(frozen=True, slots=True)
class EventView:
    time_ns: int
    name: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class LinkView:
    trace_id: bytes
    span_id: bytes
    trace_state: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SpanDetail:
    attributes: Attributes
    events: tuple[EventView, ...]
    links: tuple[LinkView, ...]
    trace_state: str
    status_message: str


@dataclass(frozen=True, slots=True)
class ScopeView:
    name: str
    version: str
    attributes: Attributes


def decode_span(raw: bytes) -> SpanDetail:
    """Return what one span carries; raises ValueError when the bytes are no span."""
    span = _parse(Span, "span", raw)
    return SpanDetail(
        attributes=_read_attributes(span.attributes),
        events=tuple(
            EventView(event.time_unix_nano, event.name, _read_attributes(event.attributes))
            for event in span.events
        ),
        links=tuple(
            LinkView(link.trace_id, link.span_id, link.trace_state, _read_attributes(link.attributes))
            for link in span.links
        ),
        trace_state=span.trace_state,
        status_message=span.status.message,
    )


def decode_link_targets(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return the trace and span ids that one span's links point at; ids of a wrong length are left out."""
    try:
        links = _parse(Span, "span", raw).links
    except ValueError:
        return []
    return [
        (link.trace_id, link.span_id) for link in links if len(link.trace_id) == 16 and len(link.span_id) == 8
    ]


def decode_resource(raw: bytes) -> Attributes:
    """Return the attributes of one resource."""
    return _read_attributes(_parse(Resource, "resource", raw).attributes)


def decode_scope(raw: bytes) -> ScopeView:
    """Return one instrumentation scope."""
    scope = _parse(InstrumentationScope, "scope", raw)
    return ScopeView(scope.name, scope.version, _read_attributes(scope.attributes))


def decode_log_attributes(raw: bytes) -> Attributes:
    """Return the attributes of one log record."""
    return _read_attributes(_parse(LogRecord, "log", raw).attributes)


def _parse(message: type[_MessageT], kind: str, raw: bytes) -> _MessageT:
    try:
        return message.FromString(raw)
    except DecodeError:
        pass
    try:
        return message.FromString(replace_bad_text(raw, kind))
    except DecodeError as error:
        raise ValueError(f"stored bytes are no {kind}: {error}") from error


def _read_attributes(pairs: Iterable[Any], depth: int = _MAX_DEPTH) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for pair in pairs:
        found.setdefault(pair.key, _read_value(pair.value, depth))
    return found


def _read_value(value: Any, depth: int) -> Value:
    kind = value.WhichOneof("value")
    if kind is None or not depth:
        return None
    if kind == "array_value":
        return [_read_value(item, depth - 1) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _read_attributes(value.kvlist_value.values, depth - 1)
    found: Value = getattr(value, kind)
    return found
