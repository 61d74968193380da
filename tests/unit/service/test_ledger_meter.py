# What the processor counts of its engines, and how few names that takes.
import numpy as np

from otel_llmprism.exporters.ledger_chunks import encode_columns
from otel_llmprism.native.ledger_layout import ChunkAnchor
from otel_llmprism.native.ledger_schema import COLUMNS, Table
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerBody, LedgerReader, LedgerSource
from otel_llmprism.semconv.ledger import EVENT_LEDGER
from otel_llmprism.semconv.ledger_intake import LEDGER_LAST_STEP_SEEN, LEDGER_STEPS
from otel_llmprism.service.processor_ledger_meter import LedgerMeter


def make_body(engine: str, run: str, seq: int, steps: list[int]) -> LedgerBody:
    values = {
        column.key: np.zeros(len(steps), dtype=np.uint64) for column in COLUMNS if column.table is Table.STEPS
    }
    values["steps.step"] = np.array(steps, dtype=np.uint64)
    body = encode_columns(values, ChunkAnchor(steps[0], steps[-1], 0, 0))
    return LedgerBody(LedgerSource(engine, run, "node"), EVENT_LEDGER, seq, body)


def count(bodies: list[LedgerBody]) -> Counters:
    counters = Counters()
    meter = LedgerMeter(counters)
    for batch in LedgerReader(counters).read_bodies(bodies):
        meter.take(batch)
    return counters


def test_last_step_is_that_of_the_latest_run_however_its_chunks_are_ordered() -> None:
    counters = count(
        [
            make_body("e", "aa", 1, [5, 6]),
            make_body("e", "aa", 0, [3, 4]),
        ]
    )
    assert counters.value(LEDGER_LAST_STEP_SEEN, engine="e") == 6
    assert counters.value(LEDGER_STEPS, engine="e") == 4
    counters = count([make_body("e", "aa", 0, [5, 6]), make_body("e", "bb", 0, [0])])
    assert counters.value(LEDGER_LAST_STEP_SEEN, engine="e") == 0


def test_engines_that_start_again_and_again_leave_room_for_other_counts() -> None:
    counters = count([make_body(f"engine-{number}", "aa", 0, [0, 1]) for number in range(1500)])
    assert counters.value(LEDGER_STEPS, engine="engine-0") == 2
    assert counters.value(LEDGER_STEPS, engine="other") == 2 * 1300
    assert len(counters.read_all()) < 500
