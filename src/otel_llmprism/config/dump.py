# A Config dataclass -> the mapping a user would write for it, secrets hidden. For --print-config.
from collections.abc import Callable
from typing import Any

from otel_llmprism.config.fields import Kind, Shape, list_fields
from otel_llmprism.config.quantities import format_duration, format_size
from otel_llmprism.config.secret import HIDDEN


def dump_config(config: object) -> dict[str, object]:
    """Return every key with its effective value; what is absent and optional is left out."""
    return {
        field.key: dump_value(getattr(config, field.name), field.shape)
        for field in list_fields(type(config))
        if getattr(config, field.name) is not None
    }


def dump_value(value: Any, shape: Shape) -> object:
    """Return one value as a file would hold it."""
    if value is None:
        return None
    if shape.kind is Kind.LIST and shape.item is not None:
        return [dump_value(item, shape.item) for item in value]
    if shape.kind is Kind.MAP and shape.item is not None:
        return {str(key): dump_value(item, shape.item) for key, item in value.items()}
    write = _WRITERS.get(shape.kind)
    return value if write is None else write(value)


_WRITERS: dict[Kind, Callable[[Any], object]] = {
    Kind.SECTION: dump_config,
    Kind.SECRET: lambda _: HIDDEN,
    Kind.DURATION: format_duration,
    Kind.SIZE: format_size,
    Kind.CHOICE: str,
    Kind.PATH: str,
}
