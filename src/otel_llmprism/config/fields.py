# What the fields of a frozen Config dataclass mean to a user's file. Names carry units, so the name says
# the kind: `timeout_s: float` is the key `timeout` and a duration, `max_bytes: int` is a size.
import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

from otel_llmprism.config.secret import Secret


class Kind(Enum):
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    PATH = "path"
    SECRET = "secret"
    SCALAR = "scalar"  # text, number or truth value, kept as it is written
    CHOICE = "choice"
    DURATION = "duration"
    SIZE = "size"
    SECTION = "section"  # a nested dataclass
    LIST = "list"
    MAP = "map"


_SCALARS: dict[object, Kind] = {
    bool: Kind.BOOL,
    int: Kind.INT,
    float: Kind.FLOAT,
    str: Kind.TEXT,
    Path: Kind.PATH,
    Secret: Kind.SECRET,
}
# A file cannot write bytes, but the components' Scalar has them.
_SCALAR_TYPES = {str, int, float, bool, bytes}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a value must look like; `item` is that of a list's or map's values."""

    kind: Kind
    type: Any
    is_optional: bool = False
    item: "Shape | None" = None


@dataclass(frozen=True, slots=True)
class FieldShape:
    name: str  # in the dataclass
    key: str  # in the user's file
    shape: Shape
    default: object  # MISSING: must be given


def list_fields(section: type[Any]) -> tuple[FieldShape, ...]:
    """Return the fields of a Config dataclass; raises TypeError for a type no file can hold."""
    hints = typing.get_type_hints(section)
    found = []
    for field in dataclasses.fields(section):
        if not field.init:
            continue
        shape = _read_shape(hints[field.name], field.name)
        key = field.name.removesuffix("_s") if shape.kind is Kind.DURATION else field.name
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        found.append(FieldShape(field.name, key, shape, default))
    return tuple(found)


def _read_shape(hint: Any, name: str) -> Shape:
    kind = _SCALARS.get(hint)
    if kind is not None:
        return Shape(_refine_by_unit(kind, name), hint)
    if isinstance(hint, type):
        if issubclass(hint, StrEnum):
            return Shape(Kind.CHOICE, hint)
        if dataclasses.is_dataclass(hint):
            return Shape(Kind.SECTION, hint)
    shape = _read_union(hint, name) if _is_union(hint) else _read_collection(hint, name)
    if shape is None:
        raise TypeError(f"no configuration file can hold {name}: {hint}")
    return shape


def _read_union(hint: Any, name: str) -> Shape | None:
    options = typing.get_args(hint)
    if type(None) in options:
        inner = [option for option in options if option is not type(None)]
        whole = inner[0] if len(inner) == 1 else typing.Union[tuple(inner)]  # noqa: UP007 - made of a list
        return dataclasses.replace(_read_shape(whole, name), is_optional=True)
    return Shape(Kind.SCALAR, hint) if set(options) <= _SCALAR_TYPES else None


def _read_collection(hint: Any, name: str) -> Shape | None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, list, Sequence) and arguments:
        return Shape(Kind.LIST, origin, item=_read_shape(arguments[0], name))
    if origin in (dict, Mapping) and len(arguments) == 2:
        return Shape(Kind.MAP, origin, item=_read_shape(arguments[1], name))
    return None


def _refine_by_unit(kind: Kind, name: str) -> Kind:
    if kind is Kind.FLOAT and name.endswith("_s"):
        return Kind.DURATION
    if kind is Kind.INT and name.endswith("bytes"):
        return Kind.SIZE
    return kind


def _is_union(hint: object) -> bool:
    return typing.get_origin(hint) in (types.UnionType, typing.Union)
