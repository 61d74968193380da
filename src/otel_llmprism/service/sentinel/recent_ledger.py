# The latest scored batches, so that a step can become a span some time after it was: for a finding's onset,
# worst and recovery. Bounded in bytes over all engines; the oldest leave.
from collections import deque
from dataclasses import fields

import numpy as np

from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.service.sentinel.news import ScoredBatch

MAX_BYTES = 64 << 20
_Found = tuple[ScoredBatch, int]


class RecentLedger:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._batches: deque[tuple[ScoredBatch, int]] = deque()

    def add(self, batch: ScoredBatch) -> None:
        size = measure_tables(batch.tables)
        self._batches.append((batch, size))
        self._bytes += size
        while self._bytes > self._max_bytes and len(self._batches) > 1:
            _, gone = self._batches.popleft()
            self._bytes -= gone

    def find(self, engine_id: str, run: str, step: int) -> _Found | None:
        """Return the batch of a step and its row in the ledger; None: it is no longer here."""
        for batch, _ in reversed(self._batches):
            source = batch.source
            if source.engine_id != engine_id or source.run != run or not len(batch.tables.steps):
                continue
            rows = np.flatnonzero(batch.tables.steps.step == np.uint64(step))
            if len(rows):
                return batch, int(rows[0])
        return None


def measure_tables(tables: LedgerTables) -> int:
    """Return about how many bytes the columns take."""
    return sum(
        own.nbytes
        if isinstance(own, np.ndarray)
        else sum(getattr(own, field.name).itemsize for field in fields(own)) * len(own)
        for own in (getattr(tables, table.name) for table in fields(LedgerTables))
    )
