# Steps of the ledger -> step records: the lines that `analyze` and `baseline` read, and people too.
# Times become real time by the anchor of the chunk that a step came in.
import csv
import io
import json
from collections.abc import Iterator
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import UNKNOWN, ChunkTable, StepTable
from otel_llmprism.semconv.step import KINDS

COLUMNS = (
    *("start_ns", "duration_ns", "engine", "kind", "requests", "prefill_tokens", "decode_tokens"),
    *("kv_tokens", "instance", "step", "waiting", "preemptions", "gap_ns"),
)
Rows = npt.NDArray[np.intp]


class RecordFormat(StrEnum):
    TEXT = "text"
    CSV = "csv"
    JSON_LINES = "jsonl"


def list_start_times(steps: StepTable, chunks: ChunkTable) -> npt.NDArray[np.int64]:
    """Return when each step's cycle began, in real time; its schedule start where it has no cycle."""
    own_chunk = np.searchsorted(chunks.first_step_row, np.arange(len(steps)), side="right") - 1
    shift = chunks.anchor_realtime_ns.astype(np.int64) - chunks.anchor_monotonic_ns.astype(np.int64)
    has_cycle = (steps.cycle_ns != UNKNOWN) & (steps.output_ready_ns != UNKNOWN)
    start = np.where(has_cycle, steps.output_ready_ns - steps.cycle_ns, steps.schedule_start_ns)
    return start.astype(np.int64) + shift[own_chunk]


def format_header(record_format: RecordFormat) -> str:
    """Return what stands before the first record."""
    if record_format is RecordFormat.TEXT:
        counts = f"{'requests':>8} {'prefill':>8} {'decode':>7}"
        return f"{'step':>10} {'kind':8} {'cycle_ms':>9} {'gap_ms':>8} {counts} engine\n"
    return _to_csv_line(COLUMNS) if record_format is RecordFormat.CSV else ""


def format_records(
    steps: StepTable,
    chunks: ChunkTable,
    rows: Rows,
    record_format: RecordFormat,
    *,
    engine: str,
    instance: str,
) -> Iterator[str]:
    """Yield one line a step of `rows`; steps without a cycle have none (the caller counts them)."""
    starts = list_start_times(steps, chunks)
    for row in rows[steps.cycle_ns[rows] != UNKNOWN].tolist():
        code = int(steps.kind[row])
        kind = KINDS[code - 1] if 0 < code <= len(KINDS) else ""
        gap_ns = None if steps.gap_ns[row] == UNKNOWN else int(steps.gap_ns[row])
        record = (
            int(starts[row]), int(steps.cycle_ns[row]), engine, kind,
            int(steps.requests[row]), int(steps.prefill_tokens[row]), int(steps.decode_tokens[row]),
            int(steps.kv_tokens[row]), instance, int(steps.step[row]), int(steps.waiting[row]),
            int(steps.preemptions[row]), gap_ns,
        )  # fmt: skip
        yield _format_record(record, record_format)


def _format_record(record: tuple[int | str | None, ...], record_format: RecordFormat) -> str:
    if record_format is RecordFormat.JSON_LINES:
        return json.dumps(dict(zip(COLUMNS, record, strict=True))) + "\n"
    if record_format is RecordFormat.CSV:
        return _to_csv_line(record)
    named = dict(zip(COLUMNS, record, strict=True))
    cycle_ms, gap_ms = (int(named[name] or 0) / 1e6 for name in ("duration_ns", "gap_ns"))
    counts = f"{named['requests']:>8} {named['prefill_tokens']:>8} {named['decode_tokens']:>7}"
    return f"{named['step']:>10} {named['kind']:8} {cycle_ms:9.3f} {gap_ms:8.3f} {counts} {named['engine']}\n"


def _to_csv_line(cells: tuple[int | str | None, ...]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
