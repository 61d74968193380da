# Encodes single OTLP fields, to be appended to records: an attribute, a span link. Bytes out only.
import struct
from collections.abc import Mapping

from otel_llmprism.native.otlp_layout import ATTRIBUTE_TAGS
from otel_llmprism.native.otlp_twin_wire import encode_varint

Scalar = str | int | float | bool | bytes
_LINK_TAG = 0x6A
_INT64 = range(-(1 << 63), 1 << 63)


def encode_attribute(signal: str, key: str, value: Scalar) -> bytes:
    """Return the field of one attribute of a span or log record (of a metric: of its metadata)."""
    return encode_varint(ATTRIBUTE_TAGS[signal]) + _frame(_encode_pair(key, value))


def encode_link(trace_id: bytes, span_id: bytes, attributes: Mapping[str, Scalar] | None = None) -> bytes:
    """Return the field of one span link; append it as attributes are appended."""
    if len(trace_id) != 16 or len(span_id) != 8:
        raise ValueError("a link needs a trace id of 16 bytes and a span id of 8")
    pairs = [b"\x22" + _frame(_encode_pair(key, value)) for key, value in (attributes or {}).items()]
    body = b"\x0a" + _frame(trace_id) + b"\x12" + _frame(span_id) + b"".join(pairs)
    return encode_varint(_LINK_TAG) + _frame(body)


def _encode_pair(key: str, value: Scalar) -> bytes:
    return b"\x0a" + _frame(key.encode()) + b"\x12" + _frame(_encode_value(value))


def _encode_value(value: Scalar) -> bytes:
    if isinstance(value, str):
        return b"\x0a" + _frame(value.encode())
    if isinstance(value, bool):  # before int: a bool is one
        return b"\x10" + bytes([value])
    if isinstance(value, int):
        if value not in _INT64:
            raise ValueError(f"an attribute holds 64-bit integers, not {value}")
        return b"\x18" + encode_varint(value & ((1 << 64) - 1))
    if isinstance(value, float):
        return b"\x21" + struct.pack("<d", value)
    return b"\x3a" + _frame(value)


def _frame(body: bytes) -> bytes:
    return encode_varint(len(body)) + body
