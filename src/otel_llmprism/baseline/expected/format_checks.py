# Reads checked values out of a model's header and checked arrays out of its bytes, in the order they were
# written. Everything has a type and bounds; the first thing that has not ends the reading with one line.
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from otel_llmprism.baseline.expected.settings import BaselineFormatError

AnyArray = npt.NDArray[Any]
DTYPES: dict[str, np.dtype[Any]] = {"f8": np.dtype("<f8"), "f4": np.dtype("<f4"), "i4": np.dtype("<i4")}


class FormatReader:
    """Reads the arrays' bytes from the first to the last; `finish` refuses what is left over."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read_array(self, dtype: str, shape: tuple[int, ...], low: float, high: float) -> AnyArray:
        """Return the next array; every value is finite and within low..high."""
        kind = DTYPES[dtype]
        size = math.prod(shape) * kind.itemsize
        if size > len(self._data) - self._at:
            refuse("its arrays are shorter than its header says")
        array = np.frombuffer(self._data, kind, math.prod(shape), self._at).reshape(shape)
        self._at += size
        if not np.isfinite(array).all() or (array.size and (array.min() < low or array.max() > high)):
            refuse("an array holds a value out of bounds")
        native: AnyArray = array.astype(kind.newbyteorder("="))
        native.flags.writeable = False
        return native

    def finish(self) -> None:
        """Refuse bytes that belong to nothing."""
        if self._at != len(self._data):
            refuse("its arrays are longer than its header says")

    @staticmethod
    def read_objects(told: Mapping[str, Any], name: str, most: int) -> list[dict[str, Any]]:
        values = _read_list(told, name, most)
        if not all(isinstance(value, dict) for value in values):
            refuse(f"{name} are no objects")
        return values

    @staticmethod
    def read_texts(told: Mapping[str, Any], name: str, most: int, characters: int) -> tuple[str, ...]:
        values = _read_list(told, name, most)
        if not all(isinstance(value, str) and len(value) <= characters for value in values):
            refuse(f"{name} are no texts of at most {characters} characters")
        return tuple(values)

    @staticmethod
    def read_count(told: Mapping[str, Any], name: str, low: int, high: int) -> int:
        value = told.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            refuse(f"{name} is no whole number from {low} to {high}")
        return value

    @staticmethod
    def read_number(told: Mapping[str, Any], name: str, low: float, high: float) -> float:
        value = told.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            refuse(f"{name} is no number from {low:g} to {high:g}")
        return float(value)


def refuse(why: str) -> NoReturn:
    """Raise the one-line error."""
    raise BaselineFormatError(f"the model is not as it should be: {why}")


def _read_list(told: Mapping[str, Any], name: str, most: int) -> list[Any]:
    values = told.get(name)
    if not isinstance(values, list) or len(values) > most:
        refuse(f"{name} is no list of at most {most}")
    return values
