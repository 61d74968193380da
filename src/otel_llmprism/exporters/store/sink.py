# The store as the pipeline sees it: batches in, receipts settled after the commit (or after a counted
# loss). One writer thread; waiting batches are bounded in bytes, and send() blocks at the bound.
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from otel_llmprism.exporters.store.config import StoreConfig
from otel_llmprism.exporters.store.group_writer import DeadLetterBox, GroupWriter
from otel_llmprism.exporters.store.latest_metrics import LatestMetrics
from otel_llmprism.exporters.store.scan_columns import SpanColumns
from otel_llmprism.exporters.store.searchable import RESOURCE_KEYS, choose_indexed_keys
from otel_llmprism.exporters.store.store import SpanStore
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.log_pace import LogPace
from otel_llmprism.semconv.pipeline import PIPELINE_ERRORS
from otel_llmprism.semconv.store import STORE_FORGOTTEN, STORE_USED_BYTES

_logger = logging.getLogger(__name__)


_IDLE_S = 1.0  # retention by age is looked after this often when nothing comes in


class StoreSink:
    """Implements pipeline.ports.Sink over one SpanStore."""

    def __init__(
        self,
        config: StoreConfig,
        counters: Counters,
        read_time_ns: Callable[[], int] = time.time_ns,
        dead_letters: DeadLetterBox | None = None,
    ) -> None:
        self.latest_metrics = LatestMetrics()
        self._config = config
        self._counters = counters
        self._read_time_ns = read_time_ns
        keys = choose_indexed_keys(config.index_attributes, with_content=config.index_content)
        self._pace = LogPace(time.monotonic_ns)
        self._writer = GroupWriter(
            SpanColumns(keys, RESOURCE_KEYS),
            latest_metrics=self.latest_metrics,
            counters=counters,
            dead_letters=dead_letters,
            wait=self._wait_unless_stopping,
            pace=self._pace,
        )
        self._waiting: deque[Batch] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._stop_by_ns: int | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the store; raises when its folder is in use, too new, or cannot be written."""
        store = SpanStore(self._config, self._read_time_ns)
        self._thread = threading.Thread(target=self._run, args=(store,), name="llmprism-store", daemon=True)
        self._thread.start()

    def send(self, batch: Batch, /) -> None:
        """Queue `batch`; blocks while the queue is at its bound."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._waiting.append(batch)
            self._waiting_bytes += len(batch.payload)
            self._changed.notify_all()

    def stop(self, deadline_ns: int) -> None:
        """Write what is queued until `deadline_ns` (CLOCK_MONOTONIC), then close the file."""
        with self._changed:
            self._stop_by_ns = deadline_ns
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _has_room(self) -> bool:
        is_stopping = self._stop_by_ns is not None
        return not self._waiting or is_stopping or self._waiting_bytes < self._config.queue_bytes

    def _run(self, store: SpanStore) -> None:
        try:
            while (group := self._take_group()) is not None:
                if group and not self._writer.write(store, group):
                    break  # told to stop while the store takes nothing: the log has the rest
                self._forget_due(store)
        finally:
            store.close()

    def _take_group(self) -> list[Batch] | None:
        """Wait for batches of one signal worth one block; [] after an idle while, None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stop_by_ns is not None, _IDLE_S)
            is_late = self._stop_by_ns is not None and time.monotonic_ns() >= self._stop_by_ns
            if is_late or (self._stop_by_ns is not None and not self._waiting):
                return None
            group: list[Batch] = []
            size = 0
            while self._waiting and (
                not group
                or (
                    self._waiting[0].signal == group[0].signal
                    and size + len(self._waiting[0].payload) <= self._config.block_bytes
                )
            ):
                group.append(self._waiting.popleft())
                size += len(group[-1].payload)
            self._waiting_bytes -= size
            self._changed.notify_all()
            return group

    def _wait_unless_stopping(self, delay_s: float) -> bool:
        with self._changed:
            return not self._changed.wait_for(lambda: self._stop_by_ns is not None, delay_s)

    def _forget_due(self, store: SpanStore) -> None:
        try:
            forgotten = store.forget_due()
            self._counters.add(STORE_FORGOTTEN, forgotten.spans)
            self._counters.set(STORE_USED_BYTES, store.measure_used())
        except Exception:  # without this thread the whole pipeline waits
            self._counters.add(PIPELINE_ERRORS, part="store_retention")
            if self._pace.is_due("retention"):
                _logger.exception("the store could not forget old spans")
