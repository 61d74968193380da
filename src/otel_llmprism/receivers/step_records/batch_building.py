# Rows as they stand in a file -> columns that hold, row by row checked. A row that does not hold is reported
# with its place and costs that row only. Remembers which further columns are numbers, one file long.
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from otel_llmprism.model.steps import F64, U8, U64
from otel_llmprism.model.work import DECODE_TOKENS, PREFILL_TOKENS, STANDARD_FEATURES, WorkTable
from otel_llmprism.native.ring_codes import StepKind
from otel_llmprism.receivers.step_records.cells import (
    Marks,
    intern_names,
    parse_floats,
    parse_integers,
    parse_kinds,
)
from otel_llmprism.receivers.step_records.record_batch import RawRows, RecordBatch, StepRecordError
from otel_llmprism.receivers.step_records.text_lines import PlaceReport
from otel_llmprism.receivers.step_records.work_columns import KNOWN_COLUMNS, MAX_FEATURES, is_work

DURATION, START, KIND = "duration_ns", "start_ns", "kind"
MAX_DURATION_NS = 10**15  # eleven days: a step that took longer is no step
MAX_VALUE = 1e15


@dataclass(slots=True)
class BatchBuilder:
    """For one file: a further column is a number or a text from the first rows that tell it on."""

    report: PlaceReport
    is_number: dict[str, bool] = field(default_factory=dict)

    def build_batch(self, raw: RawRows) -> RecordBatch:
        """Return the rows that hold; StepRecordError when the file can have none."""
        if DURATION not in raw.columns:
            raise StepRecordError(f"no column {DURATION}, so these are no step records")
        empty: list[object] = [None] * len(raw.places)
        reasons: dict[int, str] = {}
        cycle, is_odd = parse_integers(raw.columns[DURATION], 0)
        _note(reasons, is_odd | (cycle <= 0) | (cycle > MAX_DURATION_NS), raw, DURATION)
        start, is_odd = parse_integers(raw.columns.get(START, empty), 0)
        _note(reasons, is_odd, raw, START)
        features = self._read_features(raw, reasons)
        kinds = fill_kinds(parse_kinds(raw.columns.get(KIND, empty)), features)
        for row in sorted(reasons):
            self.report(raw.places[row], reasons[row])
        kept = np.setdiff1d(np.arange(len(cycle)), np.fromiter(reasons, np.int64, len(reasons)))
        columns = [column[kept] for column in features.values()]
        values = np.stack(columns, axis=1) if columns else np.empty((len(kept), 0))
        engine, engine_names = intern_names(_pick(raw.columns.get("engine", empty), kept))
        instance, instance_names = intern_names(_pick(raw.columns.get("instance", empty), kept))
        return RecordBatch(
            WorkTable(kinds[kept], tuple(features), values),
            cycle[kept].astype(np.uint64), start[kept], np.array(raw.numbers, np.uint64)[kept],
            engine, engine_names, instance, instance_names, self._list_left_out(),
        )  # fmt: skip

    def _read_features(self, raw: RawRows, reasons: dict[int, str]) -> dict[str, F64]:
        features: dict[str, F64] = {}
        for name in (name for name in STANDARD_FEATURES if name in raw.columns):
            values, is_odd = parse_floats(raw.columns[name])
            _note(reasons, is_odd | (values < 0) | (values > MAX_VALUE), raw, name)
            features[name] = values
        for name, cells in raw.columns.items():
            if name in KNOWN_COLUMNS or name in STANDARD_FEATURES:
                continue
            values, is_odd = parse_floats(cells)
            if not self._decide_number(name, values, is_odd) or not is_work(name):
                continue
            if len(features) < MAX_FEATURES:
                # A further column must not cost rows: what it cannot say is not told.
                is_told = ~is_odd & (values >= 0) & (values <= MAX_VALUE)
                features[name] = np.where(is_told, values, np.nan)
        return features

    def _decide_number(self, name: str, values: F64, is_odd: Marks) -> bool:
        told, odd = int(np.count_nonzero(~np.isnan(values))), int(np.count_nonzero(is_odd))
        if name not in self.is_number and told + odd:
            self.is_number[name] = told > odd
        return self.is_number.get(name, False)

    def _list_left_out(self) -> tuple[str, ...]:
        return tuple(name for name, is_number in self.is_number.items() if is_number and not is_work(name))


def fill_kinds(kinds: U8, features: dict[str, F64]) -> U8:
    """Return the kinds, those not told taken from what the tokens say."""
    zeros = np.zeros(len(kinds))
    has_prefill = features.get(PREFILL_TOKENS, zeros) > 0
    has_decode = features.get(DECODE_TOKENS, zeros) > 0
    told = np.select(
        [has_prefill & has_decode, has_prefill, has_decode],
        [StepKind.MIXED, StepKind.PREFILL, StepKind.DECODE],
        StepKind.UNKNOWN,
    )
    return np.where(kinds == 0, told, kinds).astype(np.uint8)


def _note(reasons: dict[int, str], is_bad: Marks, raw: RawRows, name: str) -> None:
    for row in np.flatnonzero(is_bad).tolist():
        cell = raw.columns[name][row] if name in raw.columns else None
        text = f"{name} is missing" if cell in {None, ""} else f"{name} cannot be {str(cell)[:40]!r}"
        reasons.setdefault(row, text)


def _pick(cells: list[object], rows: Iterable[int] | U64) -> list[object]:
    return [cells[row] for row in rows]
