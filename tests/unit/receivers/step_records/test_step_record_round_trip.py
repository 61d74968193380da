# What the exporter of step records writes, the reader reads back.
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_llmprism.exporters.step_records import RecordFormat, format_header, format_records
from otel_llmprism.model.steps import UNKNOWN, ChunkTable, StepTable
from otel_llmprism.receivers.step_records import RejectedRows, read_step_records

COUNT = 300
SHIFT_NS = 1_767_225_600_000_000_007


def build_steps(seed: int) -> StepTable:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {column.name: rng.integers(1, 5, COUNT) for column in fields(StepTable)}
    columns["cycle_ns"] = rng.integers(1, 10**9, COUNT).astype(np.uint64)
    columns["cycle_ns"][7] = UNKNOWN
    columns["output_ready_ns"] = np.cumsum(rng.integers(10**9, 2 * 10**9, COUNT)).astype(np.uint64)
    columns["kv_tokens"] = rng.integers(0, 10**7, COUNT).astype(np.uint64)
    columns["gap_ns"] = rng.integers(0, 10**6, COUNT).astype(np.uint64)
    return StepTable(**columns)


def build_chunks() -> ChunkTable:
    columns: dict[str, Any] = {column.name: np.zeros(1, np.uint64) for column in fields(ChunkTable)}
    columns["anchor_realtime_ns"] = np.array([SHIFT_NS], np.uint64)
    return ChunkTable(**columns)


@pytest.mark.parametrize("record_format", [RecordFormat.CSV, RecordFormat.JSON_LINES])
def test_records_that_were_exported_are_read_back_the_same(
    tmp_path: Path, record_format: RecordFormat
) -> None:
    steps, path = build_steps(seed=3), tmp_path / "steps"
    lines = format_records(
        steps, build_chunks(), np.arange(COUNT), record_format, engine='a,"b"', instance="i-0"
    )
    path.write_text(format_header(record_format) + "".join(lines), encoding="utf-8")
    rejected = RejectedRows()
    (batch,) = read_step_records(path, rejected)
    kept = steps.cycle_ns != UNKNOWN
    assert rejected.count == 0
    assert (batch.engine_names, batch.instance_names) == (('a,"b"',), ("i-0",))
    np.testing.assert_array_equal(batch.cycle_ns, steps.cycle_ns[kept])
    start = steps.output_ready_ns[kept] - steps.cycle_ns[kept] + np.uint64(SHIFT_NS)
    np.testing.assert_array_equal(batch.start_ns, start.astype(np.int64))
    np.testing.assert_array_equal(batch.work.kind, steps.kind[kept])
    for name in ("requests", "prefill_tokens", "decode_tokens", "kv_tokens"):
        np.testing.assert_array_equal(batch.work.read_feature(name), getattr(steps, name)[kept])
