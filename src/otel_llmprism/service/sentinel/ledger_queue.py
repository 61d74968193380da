# Ledger batches on their way from the pipeline thread to the sentinel's, and what people ordered. Bounded in
# bytes; a full queue never blocks: what does not fit is counted as lost.
import threading
from collections import deque
from dataclasses import dataclass

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.semconv.sentinel import SENTINEL_BATCHES, SENTINEL_QUEUE_BYTES
from otel_llmprism.service.sentinel.engine import STAGE
from otel_llmprism.service.sentinel.recent_ledger import measure_tables

_HOST_ROW_BYTES = 24


@dataclass(frozen=True, slots=True)
class Arrival:
    batch: LedgerBatch | HostBatch
    arrived_ns: int  # real time
    size: int


class LedgerQueue:
    def __init__(self, max_bytes: int, counters: Counters) -> None:
        self._max_bytes = max_bytes
        self._counters = counters
        self._changed = threading.Condition()
        self._waiting: deque[Arrival] = deque()
        self._bytes = 0
        self._is_closed = False

    def put(self, batch: LedgerBatch | HostBatch, arrived_ns: int) -> None:
        """Take a batch if there is room; never waits."""
        size, records = _measure(batch)
        with self._changed:
            is_fitting = not self._is_closed and (not self._waiting or self._bytes + size <= self._max_bytes)
            if is_fitting:
                self._waiting.append(Arrival(batch, arrived_ns, size))
                self._bytes += size
                self._changed.notify()
        if is_fitting:
            self._counters.add(SENTINEL_BATCHES)
        else:
            cause = "shutdown" if self._is_closed else "queue_full"
            self._counters.add(LOST, max(1, records), stage=STAGE, cause=cause)

    def take(self, timeout_s: float) -> Arrival | None:
        """Return the oldest; wait up to `timeout_s` for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed, timeout_s)
            if not self._waiting:
                return None
            arrival = self._waiting.popleft()
            self._bytes -= arrival.size
            return arrival

    def resize(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def close(self) -> None:
        """Take nothing more; what waits can still be taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def record_gauge(self) -> None:
        self._counters.set(SENTINEL_QUEUE_BYTES, self._bytes)


def _measure(batch: LedgerBatch | HostBatch) -> tuple[int, int]:
    if isinstance(batch, HostBatch):
        rows = len(batch.tables.samples)
        return rows * _HOST_ROW_BYTES + len(batch.tables.names), len(batch.chunks)
    return measure_tables(batch.tables), len(batch.tables.steps)
