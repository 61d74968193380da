# What the store hands out: spans as rows with their original bytes, and the question to ask for them.
# Values only.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from otel_llmprism.exporters.store.decode import Attributes, LinkView, ScopeView, SpanDetail
from otel_llmprism.exporters.store.span_rows import MAX_INT64


@dataclass(frozen=True, slots=True)
class SpanRef:
    """Enough of a span to name it and go there."""

    trace_id: bytes
    span_id: bytes
    service: str
    name: str
    start_ns: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class StoredSpan:
    trace_id: bytes
    span_id: bytes
    parent_id: bytes  # empty: a root
    service: str
    name: str
    kind: int
    status: int
    start_ns: int
    duration_ns: int
    raw: bytes  # the Span message as it came
    detail: SpanDetail
    resource: Attributes
    scope: ScopeView


@dataclass(frozen=True, slots=True)
class StoredTrace:
    trace_id: bytes
    spans: Sequence[StoredSpan]  # by start
    is_cut: bool  # there are more spans than were asked for


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """One line of a result list; `root` is the span without a parent, else the earliest."""

    root: SpanRef
    start_ns: int
    duration_ns: int  # from the first start to the last end
    services: Sequence[str]
    spans: int
    errors: int
    is_cut: bool  # the trace has more spans than were looked at


@dataclass(frozen=True, slots=True)
class BackLink:
    source: SpanRef
    link: LinkView


@dataclass(frozen=True, slots=True)
class StoredEvent:
    time_ns: int
    name: str
    service: str
    trace_id: bytes
    span_id: bytes
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class StoreSize:
    spans: int
    blocks: int
    raw_bytes: int  # of the OTLP that came in
    oldest_ns: int | None  # when the oldest kept block was stored


@dataclass(frozen=True, slots=True)
class TraceQuery:
    """All conditions must hold for one span of a trace; times bound the span's start."""

    service: str | None = None
    operation: str | None = None
    kind: int | None = None
    has_error: bool | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    start_ns: int = 0
    end_ns: int = MAX_INT64
    min_duration_ns: int = 0
    max_duration_ns: int = MAX_INT64
    limit: int = 20


@dataclass(frozen=True, slots=True)
class Found:
    trace_ids: Sequence[bytes]  # newest first
    is_partial: bool  # the time for one search was used up first
