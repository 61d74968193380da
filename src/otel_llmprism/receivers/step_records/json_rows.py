# JSON lines -> rows of cells by key; nested values are not looked at. A line that is no object is reported.
import json
from collections.abc import Iterator
from typing import BinaryIO

from otel_llmprism.receivers.step_records.record_batch import (
    MAX_COLUMNS,
    MAX_NAME_CHARACTERS,
    ROWS_AT_ONCE,
    RawRows,
)
from otel_llmprism.receivers.step_records.text_lines import PlaceReport, read_lines


def read_json_rows(file: BinaryIO, report: PlaceReport) -> Iterator[RawRows]:
    """Yield the file's rows, some at a time."""
    records: list[dict[str, object]] = []
    places: list[str] = []
    numbers: list[int] = []
    number = -1
    for line_number, line in read_lines(file, report):
        if not line.strip():
            continue
        number += 1
        record = _parse_line(line)
        if isinstance(record, str):
            report(f"line {line_number}", record)
            continue
        records.append(record)
        places.append(f"line {line_number}")
        numbers.append(number)
        if len(records) == ROWS_AT_ONCE:
            yield _turn(records, places, numbers)
            records, places, numbers = [], [], []
    if records:
        yield _turn(records, places, numbers)


def _parse_line(line: str) -> dict[str, object] | str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    if not isinstance(record, dict):
        return "no JSON object"
    return {
        str(key)[:MAX_NAME_CHARACTERS]: value
        for key, value in record.items()
        if not isinstance(value, (dict, list))
    }


def _turn(records: list[dict[str, object]], places: list[str], numbers: list[int]) -> RawRows:
    names = dict.fromkeys(name for record in records for name in record)
    kept = list(names)[:MAX_COLUMNS]  # the first to appear: what more there is cannot grow the memory
    return RawRows(places, numbers, {name: [record.get(name) for record in records] for name in kept})
