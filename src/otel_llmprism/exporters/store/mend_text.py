# Makes a span readable for the protobuf library when a client wrote text that is not UTF-8: the bad
# bytes become "?" in a copy of equal length. For showing only; what is stored stays as it came.
from typing import Final

from otel_llmprism.native.otlp_twin_wire import LEN, read_field

_MAX_DEPTH: Final = 100
_TEXT: Final = "text"
# Message -> field number -> what it holds: text, or a further message.
_FIELDS: Final[dict[str, dict[int, str]]] = {
    "span": {3: _TEXT, 5: _TEXT, 9: "attribute", 11: "event", 13: "link", 15: "status"},
    "event": {2: _TEXT, 3: "attribute"},
    "link": {3: _TEXT, 4: "attribute"},
    "status": {2: _TEXT},
    "attribute": {1: _TEXT, 2: "value"},
    "value": {1: _TEXT, 5: "array", 6: "map"},
    "array": {1: "value"},
    "map": {1: "attribute"},
    "resource": {1: "attribute"},
    "scope": {1: _TEXT, 2: _TEXT, 3: "attribute"},
    "log": {3: _TEXT, 5: "value", 6: "attribute", 12: _TEXT},
}


def replace_bad_text(message: bytes, kind: str) -> bytes:
    """Return `message` (a span, resource, scope or log) with every string valid UTF-8."""
    copy = bytearray(message)
    _mend(message, copy, (0, len(message)), kind, _MAX_DEPTH)
    return bytes(copy)


def _mend(data: bytes, copy: bytearray, place: tuple[int, int], kind: str, depth: int) -> None:
    pos, end = place
    fields = _FIELDS[kind]
    while pos < end and depth:
        tag, _, start, pos = read_field(data, pos, end, depth)
        inner = fields.get(tag >> 3) if tag & 7 == LEN else None
        if inner == _TEXT:
            copy[start:pos] = _mend_text(data[start:pos])
        elif inner is not None:
            _mend(data, copy, (start, pos), inner, depth - 1)


def _mend_text(raw: bytes) -> bytes:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return bytes(byte if byte < 0x80 else ord("?") for byte in raw)
    return raw
