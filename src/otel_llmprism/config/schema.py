# A Config dataclass -> its JSON Schema (draft 2020-12), from the same field shapes that read the file.
from dataclasses import MISSING
from typing import Any

from otel_llmprism.config.dump import dump_value
from otel_llmprism.config.fields import FieldShape, Kind, Shape, list_fields
from otel_llmprism.config.quantities import DURATION_PATTERN, SIZE_PATTERN

# A reference may stand wherever a scalar stands.
_REFERENCE = {"type": "string", "pattern": r"\$\{env:"}


def build_schema(section: type, title: str) -> dict[str, Any]:
    """Return the schema of the file that `section` reads."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **_describe_section(section),
    }


def _describe_section(section: type) -> dict[str, Any]:
    fields = list_fields(section)
    schema: dict[str, Any] = {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {field.key: _describe_field(field) for field in fields},
    }
    required = [field.key for field in fields if field.default is MISSING]
    if required:
        schema["required"] = required
        schema["type"] = "object"
    return schema


def _describe_field(field: FieldShape) -> dict[str, Any]:
    schema = _describe_shape(field.shape)
    # A section's defaults stand at its own keys.
    if field.default is MISSING or field.default is None or field.shape.kind is Kind.SECTION:
        return schema
    return {**schema, "default": dump_value(field.default, field.shape)}


def _describe_shape(shape: Shape) -> dict[str, Any]:
    if shape.kind is Kind.SECTION:
        return _describe_section(shape.type)
    if shape.kind is Kind.LIST and shape.item is not None:
        return {"type": ["array", "null"], "items": _describe_shape(shape.item)}
    if shape.kind is Kind.MAP and shape.item is not None:
        return {"type": ["object", "null"], "additionalProperties": _describe_shape(shape.item)}
    return _describe_scalar(shape)


def _describe_scalar(shape: Shape) -> dict[str, Any]:
    options: dict[Kind, list[dict[str, Any]]] = {
        Kind.BOOL: [{"type": "boolean"}, _REFERENCE],
        Kind.INT: [{"type": "integer"}, _REFERENCE],
        Kind.FLOAT: [{"type": "number"}, _REFERENCE],
        Kind.TEXT: [{"type": ["string", "number"]}],
        Kind.SCALAR: [{"type": ["string", "number", "boolean"]}],
        Kind.PATH: [{"type": "string"}],
        Kind.SECRET: [{"type": ["string", "number"]}],
        Kind.DURATION: [{"type": "string", "pattern": DURATION_PATTERN}, {"const": 0}, _REFERENCE],
        Kind.SIZE: [
            {"type": "string", "pattern": SIZE_PATTERN},
            {"type": "integer", "minimum": 0},
            _REFERENCE,
        ],
    }
    if shape.kind is Kind.CHOICE:
        return {"anyOf": [{"enum": [option.value for option in shape.type]}, _REFERENCE]}
    (first, *rest) = options[shape.kind]
    found = {"anyOf": [first, *rest]} if rest else first
    return {"anyOf": [found, {"type": "null"}]} if shape.is_optional else found
