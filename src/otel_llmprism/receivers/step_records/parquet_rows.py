# Parquet -> rows of cells by column, some row groups' worth at a time. pyarrow is an extra: without it the
# mend is said.
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_llmprism.receivers.step_records.record_batch import (
    MAX_COLUMNS,
    ROWS_AT_ONCE,
    RawRows,
    StepRecordError,
)


def read_parquet_rows(path: Path) -> Iterator[RawRows]:
    """Yield the file's rows; StepRecordError for what pyarrow cannot read, or where it is not installed."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise StepRecordError(
            "Parquet needs the package pyarrow: pip install 'otel-llmprism[parquet]'"
        ) from error
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            names = _list_flat_columns(pa, file.schema_arrow)
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=names):
                numbers = list(range(number, number + batch.num_rows))
                columns = {name: _read_cells(pa, batch.column(name)) for name in names}
                number += batch.num_rows
                yield RawRows([f"row {row}" for row in numbers], numbers, columns)
    except StepRecordError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StepRecordError(f"at row {number}: {' '.join(str(error).split())[:200]}") from error


def _list_flat_columns(pa: Any, schema: Any) -> list[str]:
    names = [field.name for field in schema if not pa.types.is_nested(field.type)]
    if len(names) > MAX_COLUMNS:
        raise StepRecordError(f"{len(names)} columns, at most {MAX_COLUMNS} are read")
    if len(set(names)) < len(names):
        raise StepRecordError("two columns have one name")
    return names


def _read_cells(pa: Any, column: Any) -> list[object]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
    elif pa.types.is_duration(column.type):
        column = column.cast(pa.duration("ns")).cast(pa.int64())
    cells: list[object] = column.to_pylist()
    return cells
