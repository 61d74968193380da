# The queue between receiver threads and the pipeline thread, bounded in bytes and in count.
# Knows neither the log nor what a batch means.
import threading
from collections import deque
from collections.abc import Iterable

from otel_llmprism.pipeline.batch import Batch


class BatchQueue:
    """First in, first out; thread-safe. A full or closed queue refuses; it never drops."""

    def __init__(self, max_bytes: int, max_count: int) -> None:
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition(threading.Lock())

    def put(self, batch: Batch) -> bool:
        """Take `batch`, or return False when full or closed; an empty queue takes any size."""
        size = len(batch.payload)
        with self._changed:
            has_room = self._bytes + size <= self._max_bytes and len(self._batches) < self._max_count
            if self._is_closed or not (has_room or not self._batches):
                return False
            self._batches.append(batch)
            self._bytes += size
            self._changed.notify()
            return True

    def take(self, timeout_s: float) -> Batch | None:
        """Give the oldest batch; wait up to `timeout_s` for one; None when there is none."""
        with self._changed:
            if not self._batches and not self._is_closed and timeout_s > 0:
                self._changed.wait(timeout_s)
            if not self._batches:
                return None
            batch = self._batches.popleft()
            self._bytes -= len(batch.payload)
            return batch

    def close(self) -> None:
        """Refuse from now on; what is inside can still be taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def is_closed(self) -> bool:
        with self._changed:
            return self._is_closed

    def empty_out(self) -> Iterable[Batch]:
        """Give everything that is left, at once."""
        with self._changed:
            left, self._batches, self._bytes = self._batches, deque(), 0
        return left

    def measure(self) -> tuple[int, int, int | None]:
        """Bytes, count and the arrival of the oldest batch (None when empty)."""
        with self._changed:
            return self._bytes, len(self._batches), self._batches[0].arrived_ns if self._batches else None
