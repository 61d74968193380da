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
    options = typing.get_args(hint) if _is_union(hint) else ()
    if type(None) in options:
        inner = [option for option in options if option is not type(None)]
        if len(inner) == 1:
            return dataclasses.replace(_read_shape(inner[0], name), is_optional=True)
    kind = _SCALARS.get(hint)
    if kind is not None:
        return Shape(_refine_by_unit(kind, name), hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Shape(Kind.CHOICE, hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return Shape(Kind.SECTION, hint)
    if origin in (tuple, list, Sequence) and arguments:
        return Shape(Kind.LIST, origin, item=_read_shape(arguments[0], name))
    if origin in (dict, Mapping) and len(arguments) == 2:
        return Shape(Kind.MAP, origin, item=_read_shape(arguments[1], name))
    raise TypeError(f"no configuration file can hold {name}: {hint}")


def _refine_by_unit(kind: Kind, name: str) -> Kind:
    if kind is Kind.FLOAT and name.endswith("_s"):
        return Kind.DURATION
    if kind is Kind.INT and name.endswith("bytes"):
        return Kind.SIZE
    return kind


def _is_union(hint: object) -> bool:
    return typing.get_origin(hint) in (types.UnionType, typing.Union)
