# OTLP/JSON -> the protobuf bytes it stands for, read as the OTLP specification says: lowerCamelCase names,
# hex ids, enums as numbers, 64-bit numbers as strings or numbers, unknown fields ignored, null as absent.
import base64
import binascii
import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal

_REQUESTS: dict[Signal, Callable[[], Message]] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
}
_HEX_FIELDS = {"trace_id", "span_id", "parent_span_id"}
_MAX_DEPTH = 90  # messages in messages; serialisation and the scanner stop at 100
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(1 << 31), (1 << 31) - 1),
}
_INTEGER_TEXT = re.compile(r"-?[0-9]{1,20}")
_NUMBER_TEXT = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SPECIAL_DOUBLES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class MalformedJsonError(ValueError):
    """The text is no OTLP/JSON request; the message names the place as a path."""


class _Field(NamedTuple):
    name: str
    is_repeated: bool
    read: Callable[[Any], Any] | None  # None: a message


def encode_json_request(signal: Signal, text: bytes) -> bytes:
    """Return the request in protobuf; raises MalformedJsonError."""
    try:
        source = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedJsonError(f"malformed JSON: {error}") from error
    except RecursionError as error:
        raise MalformedJsonError("malformed JSON: nested too deeply") from error
    request = _REQUESTS[signal]()
    _fill_message(request, source, "", 0)
    return request.SerializeToString()


def _fill_message(message: Message, source: Any, path: str, depth: int) -> None:
    if not isinstance(source, dict):
        raise MalformedJsonError(f"{path or 'the request'} is {_describe(source)}, not an object")
    if depth > _MAX_DEPTH:
        raise MalformedJsonError(f"{path[:80]}... is nested deeper than {_MAX_DEPTH}")
    fields = _list_fields(message.DESCRIPTOR)
    for key, value in source.items():
        field = fields.get(key)
        if field is None or value is None:
            continue
        place = f"{path}.{key}" if path else key
        if field.is_repeated:
            _fill_list(getattr(message, field.name), field, value, place, depth)
        elif field.read is None:
            child = getattr(message, field.name)
            child.SetInParent()  # an empty object is a field that is there
            _fill_message(child, value, place, depth + 1)
        else:
            setattr(message, field.name, _read_value(field.read, value, place))


def _fill_list(target: Any, field: _Field, values: Any, path: str, depth: int) -> None:
    if not isinstance(values, list):
        raise MalformedJsonError(f"{path} is {_describe(values)}, not an array")
    for index, value in enumerate(values):
        place = f"{path}[{index}]"
        if field.read is None:
            _fill_message(target.add(), value, place, depth + 1)
        else:
            target.append(_read_value(field.read, value, place))


def _read_value(read: Callable[[Any], Any], value: Any, path: str) -> Any:
    try:
        return read(value)
    except (ValueError, OverflowError) as error:
        raise MalformedJsonError(f"{path} is {_describe(value)}, {error}") from error


@cache
def _list_fields(descriptor: Descriptor) -> dict[str, _Field]:
    return {
        field.json_name: _Field(field.name, field.is_repeated, _choose_reader(field))
        for field in descriptor.fields
    }


def _choose_reader(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        return None
    if kind in _INTEGERS:
        return _build_integer_reader(*_INTEGERS[kind])
    if kind in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
        return _read_double
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return _read_bool
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _read_hex if field.name in _HEX_FIELDS else _read_base64
    return _read_text


def _build_integer_reader(low: int, high: int) -> Callable[[Any], int]:
    def read_integer(value: Any) -> int:
        if isinstance(value, str):
            number = int(value) if _INTEGER_TEXT.fullmatch(value) else None
        elif isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            number = None
        else:
            number = int(value)
        if number is None or not low <= number <= high:
            raise ValueError(f"not a whole number from {low} to {high}")
        return number

    return read_integer


def _read_double(value: Any) -> float:
    if isinstance(value, str):
        if value in _SPECIAL_DOUBLES:
            return _SPECIAL_DOUBLES[value]
        value = float(value) if _NUMBER_TEXT.fullmatch(value) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError("not a number")


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("not true or false")


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a string")  # noqa: TRY004 - one error for every wrong value
    return value


def _read_hex(value: Any) -> bytes:
    try:
        return binascii.unhexlify(value) if isinstance(value, str) else _refuse_value()
    except ValueError:
        raise ValueError("not an id in hexadecimal") from None


def _read_base64(value: Any) -> bytes:
    try:
        if not isinstance(value, str):
            return _refuse_value()
        plain = value.replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        raise ValueError("not base64") from None


def _refuse_value() -> bytes:
    raise ValueError


def _describe(value: Any) -> str:
    """Say what came by its kind only: values are the user's data and stay out of messages."""
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")
