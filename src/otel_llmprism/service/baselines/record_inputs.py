# What a user names as inputs -> batches of step records: files of them, ledger segments, folders of either.
# Problems are collected, never raised.
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from otel_llmprism.exporters.step_records import list_start_times
from otel_llmprism.native.ledger_frames import MAGIC
from otel_llmprism.receivers.ledger import LedgerBatch
from otel_llmprism.receivers.ledger_files import SUFFIX
from otel_llmprism.receivers.step_records import RecordBatch, RejectedRows, read_step_records
from otel_llmprism.service.ledger_history import LedgerHistory, StepBounds
from otel_llmprism.service.sentinel.work import build_work, find_undisturbed, select_charted

RECORD_SUFFIXES = (".csv", ".jsonl", ".ndjson", ".parquet", ".csv.gz", ".jsonl.gz", ".ndjson.gz")
# A ledger's steps this soon after a pause still warm up.
_SETTLE_NS = 1_000_000_000


@dataclass(slots=True)
class RecordInputs:
    """The inputs of one command; `problems` is complete once they were read."""

    rejected: RejectedRows = field(default_factory=RejectedRows)
    ledger_problems: list[str] = field(default_factory=list)

    def read(self, places: list[Path]) -> Iterator[tuple[Path, RecordBatch]]:
        """Yield batches with the file or folder they came from."""
        for place in places:
            for path in self._list_files(place):
                batches = (
                    self._read_ledger(path) if _is_ledger(path) else read_step_records(path, self.rejected)
                )
                yield from ((path, batch) for batch in batches)

    def describe_problems(self) -> list[str]:
        return [*self.rejected.describe(), *self.ledger_problems]

    def _list_files(self, place: Path) -> list[Path]:
        if not place.is_dir() or _is_ledger(place):
            return [place]
        found = sorted(path for path in place.iterdir() if path.name.lower().endswith(RECORD_SUFFIXES))
        if not found:
            self.rejected(place, "", f"no step records ({', '.join(RECORD_SUFFIXES)}) and no ledger in it")
        return found

    def _read_ledger(self, place: Path) -> Iterator[RecordBatch]:
        history = LedgerHistory(place)
        for batch in history.read_batches(StepBounds()):
            yield to_record_batch(batch)
        self.ledger_problems += history.problems
        for reading in history.counters.read_all():
            self.ledger_problems.append(f"{place}: {reading.value:.0f} x {reading.labels['cause']}")


def to_record_batch(batch: LedgerBatch) -> RecordBatch:
    """Return the charted steps of a ledger, deep-dives and what follows a pause left out."""
    steps = batch.tables.steps
    rows = select_charted(steps)
    rows = rows[find_undisturbed(steps, rows, batch.tables.pauses, _SETTLE_NS)]
    everyone = np.zeros(len(rows), np.uint32)
    name = (batch.source.engine_id,)
    return RecordBatch(
        build_work(steps, rows), steps.cycle_ns[rows], list_start_times(steps, batch.chunks)[rows],
        steps.step[rows], everyone, name, everyone, name,
    )  # fmt: skip


def _is_ledger(path: Path) -> bool:
    if path.is_dir():
        return any(path.glob(f"*{SUFFIX}"))
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
