# Ledger steps -> the work in those that are charted. Pure columns; what the numbers mean is baseline's.
from dataclasses import fields
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import U64, UNKNOWN, PauseTable, StepTable, Table
from otel_llmprism.model.work import STANDARD_FEATURES, WorkTable
from otel_llmprism.native.ring_codes import Mode, StepKind

Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
AnyTable = TypeVar("AnyTable", bound=Table)
CHARTED = np.array((StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.TRAIN), dtype=np.uint8)
_MAX_CYCLE_NS = np.uint64(3_600_000_000_000)  # beyond an hour it is a broken clock, not a step


def select_charted(steps: StepTable) -> Rows:
    """Return the rows of charted kinds that have a cycle, in the order of their results."""
    is_charted = (steps.cycle_ns != UNKNOWN) & (steps.output_ready_ns != UNKNOWN)
    is_charted &= (steps.cycle_ns > 0) & (steps.cycle_ns < _MAX_CYCLE_NS)
    is_charted &= np.isin(steps.kind, CHARTED)
    rows = np.flatnonzero(is_charted)
    ready = steps.output_ready_ns[rows]
    if len(rows) > 1 and bool(np.any(ready[1:] < ready[:-1])):
        rows = rows[np.argsort(ready, kind="stable")]
    return rows


def build_work(steps: StepTable, rows: Rows) -> WorkTable:
    """Return the standard features of `rows`; NaN for what was not told."""
    columns = [getattr(steps, name)[rows] for name in STANDARD_FEATURES]
    values = np.stack([column.astype(np.float64) for column in columns], axis=1)
    values[steps.kv_tokens[rows] == UNKNOWN, STANDARD_FEATURES.index("kv_tokens")] = np.nan
    mode = STANDARD_FEATURES.index("graph_mode")
    values[values[:, mode] == 0, mode] = np.nan  # 0: the engine does not tell
    return WorkTable(steps.kind[rows], STANDARD_FEATURES, values)


def find_undisturbed(steps: StepTable, rows: Rows, pauses: PauseTable, settle_ns: int) -> Mask:
    """Tell which of `rows` are no deep-dive and began outside pauses and the time after them."""
    is_fine: Mask = steps.mode[rows] != Mode.DEEP
    starts, ends = steps.schedule_start_ns[rows], steps.output_ready_ns[rows]
    for start, end in zip(pauses.start_ns.tolist(), pauses.end_ns.tolist(), strict=True):
        until = np.uint64(min(end + settle_ns, int(UNKNOWN)))
        is_fine &= (ends < start) | (starts > until)
    return is_fine


def take_rows(table: AnyTable, rows: Rows | Mask | slice) -> AnyTable:
    """Return some rows of a table of columns; what is no column goes along."""
    cut = [getattr(table, field.name) for field in fields(table)]
    return type(table)(*(own[rows] if isinstance(own, np.ndarray) else own for own in cut))


def to_log_ratio(observed: "npt.NDArray[np.float64]", expected: float) -> "npt.NDArray[np.float64]":
    ratio: npt.NDArray[np.float64] = np.log(np.maximum(observed, 1e-9) / max(expected, 1e-9))
    return ratio


def to_ns(values: "npt.NDArray[np.float64]") -> U64:
    return np.maximum(values, 0.0).astype(np.uint64)
