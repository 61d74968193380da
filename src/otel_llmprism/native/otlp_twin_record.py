# Span, LogRecord and Metric as rows: the columns by name, attributes handed to `note`. Returns whether
# an id of the record itself is bad. Mirrors native/src/otlp_record.cpp.
from collections.abc import Callable
from typing import Any, Final

from otel_llmprism.native.otlp_twin_value import AnyValue, read_any_value
from otel_llmprism.native.otlp_twin_walk import Request, check_message, enter, walk_message
from otel_llmprism.native.otlp_twin_wire import read_field

Row = dict[str, Any]
NoteAttribute = Callable[[int, int, int], None]  # start, end, depth left

_SPAN_TEXTS: Final = {0x1A: "", 0x2A: "name"}  # trace_state is checked, not told
_SPAN_IDS: Final = {0x0A: ("trace_id", 16), 0x12: ("span_id", 8), 0x22: ("parent_span_id", 8)}
_SPAN_NUMBERS: Final = {0x39: ("start_ns", 8), 0x41: ("end_ns", 8), 0x85: ("trace_flags", 4)}
_SPAN_NESTED: Final = {0x5A: ("Event", "event_count"), 0x6A: ("Link", "link_count")}
_LOG_TEXTS: Final = {0x1A: "severity_text", 0x62: "event_name"}
_LOG_IDS: Final = {0x4A: ("trace_id", 16), 0x52: ("span_id", 8)}
_LOG_NUMBERS: Final = {0x09: ("time_ns", 8), 0x59: ("observed_ns", 8), 0x45: ("trace_flags", 4)}
_METRIC_TEXTS: Final = {0x0A: "name", 0x12: "", 0x1A: "unit"}
_METRIC_DATA: Final = {
    0x2A: "Gauge",
    0x3A: "Gauge",
    0x4A: "Histogram",
    0x52: "ExponentialHistogram",
    0x5A: "Summary",
}


def read_span(row: Row, depth: int, request: Request, note: NoteAttribute) -> bool:
    """Read one Span into `row`; its trace and span id must be there and not be zero."""
    row |= {"attribute_count": 0, "event_count": 0, "link_count": 0}
    is_bad = False
    pos, end = row["offset"], row["offset"] + row["length"]
    while pos < end:
        tag, number, at, stop = read_field(request.data, pos, end, depth)
        if tag == 0x4A:
            row["attribute_count"] += 1
            note(at, stop, enter(depth, pos))
        elif tag in _SPAN_IDS:
            is_bad |= _note_id(row, *_SPAN_IDS[tag], request.data[at:stop])
        elif tag in _SPAN_TEXTS:
            _note_text(row, _SPAN_TEXTS[tag], at, stop, request)
        elif tag in _SPAN_NUMBERS:
            name, size = _SPAN_NUMBERS[tag]
            row[name] = int.from_bytes(request.data[at : at + size], "little")
        elif tag in _SPAN_NESTED:
            message, count = _SPAN_NESTED[tag]
            row[count] += 1
            check_message(at, stop, enter(depth, pos), message, request)
        elif tag == 0x30:
            row["kind"] = to_int32(number)
        elif tag == 0x7A:
            _read_status(row, at, stop, enter(depth, pos), request)
        pos = stop
    return is_bad or not any(row.get("trace_id", b"")) or not any(row.get("span_id", b""))


def read_log(row: Row, depth: int, request: Request, note: NoteAttribute) -> bool:
    """Read one LogRecord into `row`; its ids may be absent."""
    row["attribute_count"] = 0
    is_bad = False
    body = AnyValue()
    pos, end = row["offset"], row["offset"] + row["length"]
    while pos < end:
        tag, number, at, stop = read_field(request.data, pos, end, depth)
        if tag == 0x32:
            row["attribute_count"] += 1
            note(at, stop, enter(depth, pos))
        elif tag in _LOG_IDS:
            is_bad |= _note_id(row, *_LOG_IDS[tag], request.data[at:stop])
        elif tag in _LOG_TEXTS:
            _note_text(row, _LOG_TEXTS[tag], at, stop, request)
        elif tag in _LOG_NUMBERS:
            name, size = _LOG_NUMBERS[tag]
            row[name] = int.from_bytes(request.data[at : at + size], "little")
        elif tag == 0x10:
            row["severity"] = to_int32(number)
        elif tag == 0x2A:
            read_any_value(at, stop, enter(depth, pos), body, request)
        pos = stop
    row |= {"body_offset": body.offset, "body_length": body.length, "body_type": body.type}
    return is_bad


def read_metric(row: Row, depth: int, request: Request, note: NoteAttribute) -> bool:
    """Read one Metric into `row`; its points are counted and checked, not told."""
    row |= {"point_count": 0, "type": 0}
    pos, end = row["offset"], row["offset"] + row["length"]
    while pos < end:
        tag, _, at, stop = read_field(request.data, pos, end, depth)
        if tag in _METRIC_TEXTS:
            _note_text(row, _METRIC_TEXTS[tag], at, stop, request)
        elif tag in _METRIC_DATA:
            _read_points(row, (pos, at, stop), tag, depth, request)
        elif tag == 0x62:
            note(at, stop, enter(depth, pos))
        pos = stop
    return False


def to_int32(number: int) -> int:
    """Cut a varint to an enum as protobuf does: the low 32 bits, signed."""
    low = number & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def _note_id(row: Row, name: str, size: int, raw: bytes) -> bool:
    row[name] = raw if len(raw) == size else b""
    # No parent, no trace of a log: absent ids. For a span's own ids the caller refuses empty ones.
    return len(raw) not in {0, size}


def _note_text(row: Row, name: str, start: int, stop: int, request: Request) -> None:
    request.check_utf8(start, stop)
    if name:
        row[f"{name}_offset"], row[f"{name}_length"] = start, stop - start


def _read_status(row: Row, pos: int, end: int, depth: int, request: Request) -> None:
    while pos < end:
        tag, number, at, stop = read_field(request.data, pos, end, depth)
        if tag == 0x12:
            _note_text(row, "status_message", at, stop, request)
        elif tag == 0x18:
            row["status_code"] = to_int32(number)
        pos = stop


def _read_points(row: Row, place: tuple[int, int, int], tag: int, depth: int, request: Request) -> None:
    field, at, stop = place
    inside = enter(depth, field)
    if row["type"] != tag >> 3:  # a oneof: data of another kind takes the place of what came before
        row |= {"type": tag >> 3, "point_count": 0, "temporality": 0, "is_monotonic": 0}
    row["point_count"] += walk_message(at, stop, inside, _METRIC_DATA[tag], request)
    if tag in {0x3A, 0x4A, 0x52}:
        _read_sum_flags(request, row, at, stop, inside)


def _read_sum_flags(request: Request, row: Row, pos: int, end: int, depth: int) -> None:
    while pos < end:
        tag, number, _, pos = read_field(request.data, pos, end, depth)
        if tag == 0x10:
            row["temporality"] = to_int32(number)
        elif tag == 0x18 and row["type"] == 7:
            row["is_monotonic"] = int(number != 0)
