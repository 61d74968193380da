# What the front end tells the engine core about a request: one short text among the trace headers that vLLM
# carries anyway. Written when a request is added, taken out before the scheduler sees it.
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from otel_llmprism.instrumentation.trace_context import SpanContext
from otel_llmprism.native.ring_records import bound_id

CARRIER_KEY = "llmprism"
MAX_TRACEPARENT_CHARS = 512
_VERSION = "1"
_FIELDS = 7
_LOCAL, FRONT_END, _SAMPLED, _REMOTE = 1, 2, 4, 8  # the extension reads them too
_CONTEXT_BYTES = 16 + 8 + 8


class Carrier(NamedTuple):  # read between two steps: a frozen dataclass takes three times as long to make
    arrival_ns: int  # CLOCK_MONOTONIC; 0 when it was read on another host
    traceparent: str = ""  # the caller's, or that of the span round the call
    external_id: str = ""
    is_local_parent: bool = False
    has_front_end: bool = False  # a front end in this run books the first token and the end
    context: SpanContext | None = None  # of the request's span, where the front end could fix it


def read_host_mark() -> str:
    """Return what tells hosts apart whose monotonic clocks differ."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    except OSError:
        return ""


HOST_MARK = read_host_mark()


def write_carrier(carrier: Carrier) -> str:
    """Write it as one text; an id of any length and content stays small and valid."""
    flags = carrier.is_local_parent * _LOCAL | carrier.has_front_end * FRONT_END
    ids, context = "", carrier.context
    if context is not None:
        ids = (context.trace_id + context.span_id + context.parent_span_id).hex()
        flags |= context.is_sampled * _SAMPLED | context.has_remote_parent * _REMOTE
    traceparent = carrier.traceparent.replace("|", "")
    external_id = bound_id(carrier.external_id).decode()
    return f"{_VERSION}|{HOST_MARK}|{carrier.arrival_ns}|{flags}|{ids}|{traceparent}|{external_id}"


def take_carrier(
    headers: Mapping[str, str] | None,
) -> tuple[Carrier | None, Mapping[str, str] | None]:
    """Return our part and what the headers would be without us; no carrier when it is not ours to read."""
    if not headers or CARRIER_KEY not in headers:
        return None, headers
    text = headers[CARRIER_KEY]
    if len(headers) == 1:
        return _read_carrier(text), None
    return _read_carrier(text), {name: value for name, value in headers.items() if name != CARRIER_KEY}


def strip_carrier(request: Any) -> None:
    """Take our part out of a request's headers, unread."""
    headers = request.trace_headers
    if headers and CARRIER_KEY in headers:
        rest = {name: value for name, value in headers.items() if name != CARRIER_KEY}
        request.trace_headers = rest or None


def _read_carrier(text: str) -> Carrier | None:
    try:
        version, mark, arrival, flag_text, ids, traceparent, external_id = text.split("|", _FIELDS - 1)
        arrival_ns, flags, raw = int(arrival), int(flag_text), bytes.fromhex(ids)
    except ValueError:
        return None
    if version != _VERSION or arrival_ns < 0:
        return None
    context = None
    if len(raw) == _CONTEXT_BYTES:
        is_sampled, has_remote_parent = bool(flags & _SAMPLED), bool(flags & _REMOTE)
        context = SpanContext(raw[:16], raw[16:24], raw[24:], is_sampled, has_remote_parent)
    is_local, has_front_end = bool(flags & _LOCAL), bool(flags & FRONT_END)
    if mark != HOST_MARK or not mark:
        arrival_ns, has_front_end = 0, False
    return Carrier(arrival_ns, traceparent, external_id, is_local, has_front_end, context)
