# A fitted model of expected time: a part for each kind of step, and what a person should know about them.
# Frozen; made by fit_expected or load_expected. Knows no engine, no clock, no file.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.baseline.expected.features import read_rows
from otel_llmprism.baseline.expected.part import KindPart
from otel_llmprism.model.work import ExpectationTable, WorkTable


@dataclass(frozen=True, slots=True)
class ExpectedTime:
    """What steps should take; of one engine, model and hardware."""

    version: str  # short digest of everything below
    parts: tuple[KindPart, ...]  # at most one a kind
    notes: tuple[str, ...]  # what was done without, a sentence each

    def predict(self, work: WorkTable) -> ExpectationTable:
        """Answer each row; NaN with a spread of NaN where no part has earned an answer for its kind."""
        expected = np.full(len(work), np.nan)
        spread = np.full(len(work), np.nan)
        known = np.zeros(len(work), np.uint8)
        for part in self.parts:
            mine = np.flatnonzero(work.kind == part.kind)
            if len(mine) and part.is_earned:
                table = WorkTable(work.kind[mine], work.names, work.values[mine])
                expected[mine], spread[mine], known[mine] = part.predict(read_rows(part.space, table))
        return ExpectationTable(expected, spread, known)

    def count_missing(self, work: WorkTable) -> int:
        """Return how many values that the model knows were not told in these rows."""
        total = 0
        for part in self.parts:
            mine = np.flatnonzero(work.kind == part.kind)
            table = WorkTable(work.kind[mine], work.names, work.values[mine])
            total += int(read_rows(part.space, table).missing.sum())
        return total
