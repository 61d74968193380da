# What the scanner only has to check: every message below a record, by table. Counts strings that are
# not UTF-8 and ids of a wrong length; refuses bad framing. Mirrors native/src/otlp_walk.cpp.
from dataclasses import dataclass
from typing import Final

from otel_llmprism.native import otlp_layout as layout
from otel_llmprism.native.otlp_twin_wire import read_field, read_varint, refuse

UTF8: Final = "utf8"
PACKED64: Final = "packed64"
PACKED_VARINT: Final = "packed_varint"
TRACE_ID: Final = "trace_id"
SPAN_ID: Final = "span_id"

# message -> {tag on the wire: what its value is}; a field that is not listed is only stepped over.
SCHEMA: Final[dict[str, dict[int, str]]] = {
    "KeyValue": {0x0A: UTF8, 0x12: "AnyValue"},
    "AnyValue": {0x0A: UTF8, 0x2A: "ArrayValue", 0x32: "KeyValueList"},
    "ArrayValue": {0x0A: "AnyValue"},
    "KeyValueList": {0x0A: "KeyValue"},
    "EntityRef": {0x0A: UTF8, 0x12: UTF8, 0x1A: UTF8, 0x22: UTF8},
    "Event": {0x12: UTF8, 0x1A: "KeyValue"},
    "Link": {0x0A: TRACE_ID, 0x12: SPAN_ID, 0x1A: UTF8, 0x22: "KeyValue"},
    "Gauge": {0x0A: "NumberPoint"},
    "Histogram": {0x0A: "HistogramPoint"},
    "ExponentialHistogram": {0x0A: "ExponentialPoint"},
    "Summary": {0x0A: "SummaryPoint"},
    "NumberPoint": {0x2A: "Exemplar", 0x3A: "KeyValue"},
    "HistogramPoint": {0x32: PACKED64, 0x3A: PACKED64, 0x42: "Exemplar", 0x4A: "KeyValue"},
    "ExponentialPoint": {0x0A: "KeyValue", 0x42: "Buckets", 0x4A: "Buckets", 0x5A: "Exemplar"},
    "Buckets": {0x12: PACKED_VARINT},
    "SummaryPoint": {0x32: "Quantile", 0x3A: "KeyValue"},
    "Quantile": {},
    "Exemplar": {0x22: SPAN_ID, 0x2A: TRACE_ID, 0x3A: "KeyValue"},
}


@dataclass(slots=True)
class Request:
    """The bytes under the scanner, and what was odd in them but not refused."""

    data: bytes
    is_checked: bool = False  # accepted before: step over what no column needs
    invalid_utf8: int = 0
    bad_ids: int = 0

    def check_utf8(self, start: int, end: int) -> None:
        if self.is_checked:
            return
        try:
            self.data[start:end].decode()
        except UnicodeDecodeError:
            self.invalid_utf8 += 1


def check_message(start: int, end: int, depth: int, message: str, request: Request) -> None:
    """Check one message and all below it, unless that was done before."""
    if not request.is_checked:
        walk_message(start, end, depth, message, request)


def walk_message(start: int, end: int, depth: int, message: str, request: Request) -> int:
    """Check one message and all below it; return how many fields with tag 0x0A it has."""
    actions = SCHEMA[message]
    firsts = 0
    pos = start
    while pos < end:
        tag, _, at, stop = read_field(request.data, pos, end, depth)
        firsts += tag == 0x0A
        action = actions.get(tag)
        if action is not None and not request.is_checked:
            _check_value((pos, at, stop), depth, action, request)
        pos = stop
    return firsts


def enter(depth: int, field: int) -> int:
    """Return the depth that is left inside the submessage whose field starts at `field`."""
    if depth == 0:
        raise refuse(field, layout.TOO_DEEP)
    return depth - 1


def _check_value(place: tuple[int, int, int], depth: int, action: str, request: Request) -> None:
    field, at, stop = place
    size = stop - at
    if action in SCHEMA:
        walk_message(at, stop, enter(depth, field), action, request)
    elif action == UTF8:
        request.check_utf8(at, stop)
    elif action == TRACE_ID:
        request.bad_ids += size not in {0, 16}
    elif action == SPAN_ID:
        request.bad_ids += size not in {0, 8}
    elif action == PACKED64:
        if size % 8:
            raise refuse(field, layout.BAD_PACKED)
    else:
        while at < stop:
            at = read_varint(request.data, at, stop, field)[1]
