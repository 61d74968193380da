# CSV lines -> rows of cells by the header's names. A row that does not fit the header is reported, not kept.
import csv
from collections.abc import Iterator
from typing import BinaryIO

from otel_llmprism.receivers.step_records.record_batch import (
    MAX_COLUMNS,
    MAX_NAME_CHARACTERS,
    ROWS_AT_ONCE,
    RawRows,
    StepRecordError,
)
from otel_llmprism.receivers.step_records.text_lines import PlaceReport, read_lines


def read_csv_rows(file: BinaryIO, report: PlaceReport) -> Iterator[RawRows]:
    """Yield the file's rows, some at a time; StepRecordError where there is no header to go by."""
    rows = csv.reader(line for _, line in read_lines(file, report))
    header = _read_header(rows)
    kept: list[list[str]] = []
    places: list[str] = []
    numbers: list[int] = []
    number = -1
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            number += 1
            report(f"line {rows.line_num}", str(error))
            continue
        if not cells:
            continue
        number += 1
        if len(cells) != len(header):
            report(f"line {rows.line_num}", f"{len(cells)} cells, the header has {len(header)}")
            continue
        kept.append(cells)
        places.append(f"line {rows.line_num}")
        numbers.append(number)
        if len(kept) == ROWS_AT_ONCE:
            yield _turn(header, kept, places, numbers)
            kept, places, numbers = [], [], []
    if kept:
        yield _turn(header, kept, places, numbers)


def _read_header(rows: Iterator[list[str]]) -> list[str]:
    try:
        header = [name.strip()[:MAX_NAME_CHARACTERS] for name in next(rows, [])]
    except csv.Error as error:
        raise StepRecordError(f"the header is no line of CSV: {error}") from error
    if len(header) > MAX_COLUMNS:
        raise StepRecordError(f"{len(header)} columns, at most {MAX_COLUMNS} are read")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise StepRecordError(f"the header has {twice[0]!r} twice")
    return header


def _turn(header: list[str], rows: list[list[str]], places: list[str], numbers: list[int]) -> RawRows:
    columns = dict(zip(header, (list[object](column) for column in zip(*rows, strict=True)), strict=True))
    return RawRows(places, numbers, columns)
