# Attribute values of many records as columns: one column a selected key, types side by side as they came.
# Containers stay bytes. Knows no wire format beyond the types' numbers.
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.strings import Mask, TextColumn

F64 = npt.NDArray[np.float64]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

Scalar = str | int | float | bool | bytes


class ValueType(IntEnum):
    """As OTLP numbers its values; then what the scanner adds."""

    ABSENT = 0
    STRING = 1
    BOOL = 2
    INT = 3
    DOUBLE = 4
    ARRAY = 5
    KVLIST = 6
    BYTES = 7
    STRINDEX = 8
    EMPTY = 9
    ARRAY_IN_PIECES = 10
    KVLIST_IN_PIECES = 11


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """The value of one key for each record. `bits` holds numbers; offset and length, bytes of `payload`."""

    payload: bytes
    types: U32
    bits: U64
    offsets: U32
    lengths: U32

    def __len__(self) -> int:
        return len(self.types)

    def __getitem__(self, row: int) -> Scalar | None:
        """Return a scalar; None for absent, empty and nested values."""
        kind = self.types[row]
        if kind == ValueType.STRING:
            return self.texts[row]
        if kind == ValueType.BYTES:
            return self.texts.read_raw(row)
        if kind == ValueType.BOOL:
            return bool(self.bits[row])
        if kind == ValueType.INT:
            return int(self.bits.view(np.int64)[row])
        return float(self.bits.view(np.float64)[row]) if kind == ValueType.DOUBLE else None

    @property
    def texts(self) -> TextColumn:
        return TextColumn(self.payload, self.offsets, self.lengths)

    def match_value(self, value: Scalar) -> Mask:
        """Tell which rows hold exactly `value`, type included."""
        same: Mask
        if isinstance(value, str | bytes):
            kind = ValueType.STRING if isinstance(value, str) else ValueType.BYTES
            same = self.texts.match_text(value)
        elif isinstance(value, bool):
            kind, same = ValueType.BOOL, self.bits == np.uint64(value)
        elif isinstance(value, int):
            kind, same = ValueType.INT, self.bits.view(np.int64) == value
        else:
            kind, same = ValueType.DOUBLE, self.bits.view(np.float64) == value
        is_kind: Mask = self.types == kind
        return is_kind & same

    def to_numbers(self) -> F64:
        """Return ints, doubles and bools as float64, NaN elsewhere."""
        numbers = np.full(len(self), np.nan)
        for kind, view in (
            (ValueType.INT, np.int64),
            (ValueType.DOUBLE, np.float64),
            (ValueType.BOOL, np.uint64),
        ):
            rows = self.types == kind
            numbers[rows] = self.bits.view(view)[rows]
        return numbers
