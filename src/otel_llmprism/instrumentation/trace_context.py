# The caller's W3C context, read by hand so that no SDK is needed: one header value in, ids out.
import os
import re
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_MAX_CHARS = 512  # of a later version's header; longer is no traceparent


@dataclass(frozen=True, slots=True)
class SpanContext:
    """The context of a request span: fixed on arrival, before any of its work is known."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes  # zero: a root
    is_sampled: bool


@dataclass(frozen=True, slots=True)
class Caller:
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


def draw_id(size: int) -> bytes:
    """Return `size` random bytes that are not all zero."""
    raw = os.urandom(size)
    return raw if any(raw) else draw_id(size)
