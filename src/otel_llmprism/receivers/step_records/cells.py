# Cells of one column -> numbers, each with a mark where a cell is none. Pure; the usual column costs one
# conversion, one with odd cells goes cell by cell.
import math

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import F64, U8, U32
from otel_llmprism.receivers.step_records.record_batch import I64, MAX_NAME_CHARACTERS
from otel_llmprism.semconv.step import KINDS

Marks = npt.NDArray[np.bool_]
_KIND_CODES = {name: code for code, name in enumerate(KINDS, start=1)}


def parse_floats(cells: list[object]) -> tuple[F64, Marks]:
    """Return the values, NaN for empty cells, and which cells are no finite number."""
    try:
        values = np.array(cells, dtype=np.float64)
        is_odd = np.zeros(len(cells), bool)
    except (TypeError, ValueError, OverflowError):
        pairs = [_parse_float(cell) for cell in cells]
        values = np.array([value for value, _ in pairs], dtype=np.float64)
        is_odd = np.array([odd for _, odd in pairs], dtype=bool)
    return values, is_odd | np.isinf(values)


def _parse_float(cell: object) -> tuple[float, bool]:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return math.nan, False
    try:
        return float(cell), False  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError, OverflowError):
        return math.nan, True


def parse_integers(cells: list[object], missing: int) -> tuple[I64, Marks]:
    """Return whole numbers exactly, `missing` for empty cells, and which cells are no number."""
    try:
        if not any(isinstance(cell, float) for cell in cells):
            return np.array(cells, dtype=np.int64), np.zeros(len(cells), bool)
    except (TypeError, ValueError, OverflowError):
        pass
    values = np.full(len(cells), missing, np.int64)
    is_odd = np.zeros(len(cells), bool)
    for place, cell in enumerate(cells):
        value = _parse_integer(cell, missing)
        is_odd[place] = value is None
        values[place] = missing if value is None else value
    return values, is_odd


def _parse_integer(cell: object, missing: int) -> int | None:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return missing
    try:
        value = int(cell)  # type: ignore[call-overload]  # what is no number raises
        if isinstance(cell, float):
            value = round(cell)
    except (TypeError, ValueError, OverflowError):
        number, is_odd = _parse_float(cell)
        value = None if is_odd or not math.isfinite(number) else round(number)
    return value if value is None or abs(value) < 1 << 63 else None


def parse_kinds(cells: list[object]) -> U8:
    """Return the codes of step kinds; 0 for what is none."""
    codes = [_KIND_CODES.get(str(cell).strip().lower(), 0) if cell is not None else 0 for cell in cells]
    return np.array(codes, np.uint8)


def intern_names(cells: list[object]) -> tuple[U32, tuple[str, ...]]:
    """Return each cell's place in the tuple of distinct texts; an empty cell is the empty text."""
    places: dict[str, int] = {}
    codes = np.empty(len(cells), np.uint32)
    for row, cell in enumerate(cells):
        text = "" if cell is None else str(cell).strip()[:MAX_NAME_CHARACTERS]
        codes[row] = places.setdefault(text, len(places))
    return codes, tuple(places)
