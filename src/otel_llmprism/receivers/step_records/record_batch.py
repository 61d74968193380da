# What a reader of step records hands on: some rows of one file as columns, and the rows before they are
# checked. Knows no file format.
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import U32, U64
from otel_llmprism.model.work import WorkTable

I64 = npt.NDArray[np.int64]

ROWS_AT_ONCE = 16_384  # bounds the memory of a reader whatever the size of the file
MAX_COLUMNS = 256
MAX_NAME_CHARACTERS = 256


class StepRecordError(ValueError):
    """A file, or what is left of it, cannot be read; the text says why and fits one line."""


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows as they stand in a file: one list of cells a column, None where a row has none."""

    places: list[str]  # "line 7"
    numbers: list[int]  # zero-based data row of the file, bad rows counted
    columns: dict[str, list[object]]


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Rows that hold; `engine` and `instance` are places in the lists of names beside them."""

    work: WorkTable
    cycle_ns: U64
    start_ns: I64  # real time; 0 where the file tells none
    row: U64  # zero-based data row of the file, rejected rows counted
    engine: U32
    engine_names: tuple[str, ...]
    instance: U32
    instance_names: tuple[str, ...]
    left_out: tuple[str, ...] = ()  # numeric columns that say what came of a step, not what was in it

    def __len__(self) -> int:
        return len(self.cycle_ns)
