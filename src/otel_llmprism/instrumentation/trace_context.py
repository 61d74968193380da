# The caller's W3C context, read by hand so that no SDK is needed: one header value in, ids out.
import os
import re
import sys
from typing import NamedTuple

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_MAX_CHARS = 512  # of a later version's header; longer is no traceparent


class SpanContext(NamedTuple):
    """The context of a request span: fixed on arrival, before any of its work is known."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes  # zero: a root
    is_sampled: bool
    has_remote_parent: bool = False  # the caller is another process: the request span is a SERVER span


class Caller(NamedTuple):
    trace_id: bytes
    span_id: bytes
    is_sampled: bool


def parse_traceparent(text: str) -> Caller | None:
    """Return the caller's context, or None when there is none or it is malformed."""
    match = _TRACEPARENT.match(text.strip()) if text and len(text) <= _MAX_CHARS else None
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest) or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return Caller(bytes.fromhex(trace_id), bytes.fromhex(span_id), bool(int(flags, 16) & 1))


def read_current_span() -> tuple[str, bool]:
    """Return the current OpenTelemetry span as a `traceparent` ("": none) and whether it is local."""
    trace = sys.modules.get("opentelemetry.trace")  # never imported for this: without it there is no span
    if trace is None:
        return "", False
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return "", False
    text = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 1:02x}"
    return text, not context.is_remote


def draw_id(size: int) -> bytes:
    """Return `size` random bytes that are not all zero."""
    raw = os.urandom(size)
    return raw if any(raw) else draw_id(size)
