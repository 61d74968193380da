# A mapping as a file gives it -> a frozen Config dataclass. Every problem is found in one pass and named
# with its path; an unknown key is named with the nearest known one. Knows no component.
import difflib
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar, cast

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.fields import FieldShape, Kind, Shape, list_fields
from otel_llmprism.config.quantities import parse_duration, parse_size
from otel_llmprism.config.secret import Secret

T = TypeVar("T")
_MAX_PROBLEMS = 5
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")


def convert_mapping(mapping: object, section: type[T], source: str) -> T:
    """Return the Config; raises one ConfigError that lists the problems found in `source`."""
    converter = _Converter()
    result = converter.convert_section(mapping, section, "")
    if converter.problems:
        shown = converter.problems[:_MAX_PROBLEMS]
        more = len(converter.problems) - len(shown)
        text = "; ".join(shown) + (f"; and {more} more" if more else "")
        raise ConfigError(f"{source}: {text}")
    return cast("T", result)


class _BadValueError(ValueError):
    pass


class _Converter:
    def __init__(self) -> None:
        self.problems: list[str] = []

    def convert_section(self, value: object, section: type, path: str) -> Any:
        # `http:` with nothing behind it means the section with its defaults.
        mapping = {} if value is None else value
        if not isinstance(mapping, Mapping):
            self._note(path, f"must be a section of keys, not {_show(value)}")
            return None
        fields = {field.key: field for field in list_fields(section)}
        count_before = len(self.problems)
        for key in mapping:
            if key not in fields:
                self._note(_join(path, key), _describe_unknown(key, list(fields)))
        values = {
            field.name: self._convert_field(mapping[key], field, _join(path, key))
            for key, field in fields.items()
            if key in mapping
        }
        for key, field in fields.items():
            if key not in mapping and field.default is MISSING:
                self._note(_join(path, key), "must be given")
        if len(self.problems) > count_before:
            return None
        try:
            return section(**values)
        except ValueError as error:  # what the Config itself refuses
            self._note(path, str(error))
            return None

    def _convert_field(self, value: object, field: FieldShape, path: str) -> Any:
        if value is None and field.shape.kind is not Kind.SECTION and not field.shape.is_optional:
            # `headers:` with nothing behind it: the default, as for a section
            return None if field.default is MISSING else field.default
        return self._convert_value(value, field.shape, path)

    def _convert_value(self, value: object, shape: Shape, path: str) -> Any:
        if shape.kind is Kind.SECTION:
            return self.convert_section(value, shape.type, path)
        if value is None and shape.is_optional:
            return None
        if shape.kind is Kind.LIST:
            return self._convert_list(value, shape, path)
        if shape.kind is Kind.MAP:
            return self._convert_map(value, shape, path)
        try:
            return _convert_scalar(value, shape)
        except ValueError as error:
            shown = "" if shape.kind is Kind.SECRET else f", not {_show(value)}"
            self._note(path, f"{error}{shown}")
            return None

    def _convert_list(self, value: object, shape: Shape, path: str) -> Any:
        if not isinstance(value, list) or shape.item is None:
            self._note(path, f"must be a list, not {_show(value)}")
            return None
        items = [self._convert_value(item, shape.item, f"{path}[{i}]") for i, item in enumerate(value)]
        return items if shape.type is list else tuple(items)

    def _convert_map(self, value: object, shape: Shape, path: str) -> Any:
        if not isinstance(value, Mapping) or shape.item is None:
            self._note(path, "must be a section of keys")
            return None
        return {
            str(key): self._convert_value(item, shape.item, _join(path, key)) for key, item in value.items()
        }

    def _note(self, path: str, problem: str) -> None:
        self.problems.append(f"{path or 'the file'}: {problem}")


def _convert_scalar(value: object, shape: Shape) -> object:
    """Texts are read too: an expanded ${env:...} is always one."""
    if isinstance(value, (Mapping, list)) or value is None:
        raise _BadValueError(f"must be a {_name_kind(shape)}")
    if shape.kind is Kind.CHOICE:
        return _convert_choice(value, shape)
    return _READERS[shape.kind](value)


def _convert_text(value: object) -> str:
    if isinstance(value, bool):
        raise _BadValueError("must be a text: put it in quotes")
    return str(value)


def _convert_bool(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise _BadValueError("must be true or false")
    return text in _TRUE


def _convert_number(value: object, number: type[int] | type[float]) -> int | float:
    wanted = "a whole number" if number is int else "a number"
    if isinstance(value, bool) or (isinstance(value, float) and number is int):
        raise _BadValueError(f"must be {wanted}")
    try:
        return number(cast("str", value))
    except ValueError:
        raise _BadValueError(f"must be {wanted}") from None


def _convert_choice(value: object, shape: Shape) -> object:
    # YAML 1.1 reads a bare `off` or `no` as false; as a choice it can only be the word.
    text = ("off" if value is False else "on") if isinstance(value, bool) else str(value)
    known = [option.value for option in shape.type]
    if text not in known:
        raise _BadValueError(f"must be one of {', '.join(known)}")
    return shape.type(text)


_READERS: dict[Kind, Callable[[object], object]] = {
    Kind.BOOL: _convert_bool,
    Kind.INT: lambda value: _convert_number(value, int),
    Kind.FLOAT: lambda value: _convert_number(value, float),
    Kind.TEXT: _convert_text,
    Kind.SCALAR: lambda value: value,
    Kind.PATH: lambda value: Path(_convert_text(value)),
    Kind.SECRET: lambda value: Secret(_convert_text(value)),
    Kind.DURATION: parse_duration,
    Kind.SIZE: parse_size,
}


def _describe_unknown(key: object, known: list[str]) -> str:
    near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
    return f"unknown key; did you mean {near[0]!r}?" if near else f"unknown key; known are {', '.join(known)}"


def _name_kind(shape: Shape) -> str:
    return {Kind.TEXT: "text", Kind.SECRET: "text", Kind.BOOL: "true or false"}.get(
        shape.kind, shape.kind.value
    )


def _show(value: object) -> str:
    text = repr(value) if isinstance(value, (str, int, float, bool)) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:60] + "..."


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
