# Python values -> OTLP attributes, resource and scope, for the requests that we build ourselves.
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

AttributeValue: TypeAlias = str | bool | int | float | bytes | Sequence[str]
Attributes: TypeAlias = Mapping[str, AttributeValue]


def to_any_value(value: AttributeValue) -> AnyValue:
    if isinstance(value, bool):  # before int: a bool is one
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=item) for item in value]))


def to_key_values(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=to_any_value(value)) for key, value in attributes.items()]


def to_resource(attributes: Attributes) -> Resource:
    return Resource(attributes=to_key_values(attributes))


def build_scope(name: str, version: str) -> InstrumentationScope:
    return InstrumentationScope(name=name, version=version)
