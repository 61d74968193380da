# AnyValue and KeyValue as the scanner tells them: type, place, bits. Protobuf merge rules hold: the
# last scalar wins, an array that comes in several fields is "in pieces". Mirrors otlp_value.h.
from dataclasses import dataclass, field
from typing import Final

from otel_llmprism.native import otlp_layout as layout
from otel_llmprism.native.otlp_twin_walk import Request, check_message, enter
from otel_llmprism.native.otlp_twin_wire import read_field

_CONTAINERS: Final = {0x2A: ("ArrayValue", 5), 0x32: ("KeyValueList", 6)}
_IN_PIECES: Final = {5: layout.ARRAY_IN_PIECES, 6: layout.KVLIST_IN_PIECES}
_SCALARS: Final = {0x0A, 0x10, 0x18, 0x21, 0x3A, 0x40}  # string, bool, int, double, bytes, strindex


@dataclass(slots=True)
class AnyValue:
    type: int = layout.ABSENT
    offset: int = 0
    length: int = 0
    bits: int = 0


@dataclass(slots=True)
class KeyValue:
    key_start: int = 0
    key_end: int = 0
    value: AnyValue = field(default_factory=lambda: AnyValue(layout.EMPTY))


def read_any_value(start: int, end: int, depth: int, value: AnyValue, request: Request) -> None:
    """Merge the AnyValue in [start, end) into `value`."""
    if value.type == layout.ABSENT:
        value.type = layout.EMPTY
    pos = start
    while pos < end:
        tag, number, at, stop = read_field(request.data, pos, end, depth)
        if tag in _SCALARS:
            if tag == 0x0A:
                request.check_utf8(at, stop)
            value.bits = _read_bits(request.data, tag, number, at)
            value.type, value.offset, value.length = tag >> 3, at, stop - at
        elif tag in _CONTAINERS:
            message, kind = _CONTAINERS[tag]
            check_message(at, stop, enter(depth, pos), message, request)
            is_more = value.type in {kind, _IN_PIECES[kind]}
            value.type = _IN_PIECES[kind] if is_more else kind
            value.offset, value.length, value.bits = at, stop - at, 0
        pos = stop


def _read_bits(data: bytes, tag: int, number: int, at: int) -> int:
    if tag == 0x21:
        return int.from_bytes(data[at : at + 8], "little")
    return int(number != 0) if tag == 0x10 else number


def read_key_value(start: int, end: int, depth: int, request: Request) -> KeyValue:
    """Read one KeyValue."""
    pair = KeyValue()
    pos = start
    while pos < end:
        tag, _, at, stop = read_field(request.data, pos, end, depth)
        if tag == 0x0A:
            request.check_utf8(at, stop)
            pair.key_start, pair.key_end = at, stop
        elif tag == 0x12:
            read_any_value(at, stop, enter(depth, pos), pair.value, request)
        pos = stop
    return pair
