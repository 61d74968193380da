# Brings a group of batches to its end: written, or written later when the store cannot take it now, or kept
# as a dead letter and counted when it never will. Runs in the writer thread; knows neither queue nor clock.
import logging
import random
import sqlite3
from collections.abc import Callable, Sequence
from typing import Protocol

from otel_llmprism.exporters.retry import Backoff, RetryConfig
from otel_llmprism.exporters.store.block_writer import Written
from otel_llmprism.exporters.store.database import is_transient
from otel_llmprism.exporters.store.event_rows import EventRow, read_events
from otel_llmprism.exporters.store.latest_metrics import LatestMetrics
from otel_llmprism.exporters.store.scan_columns import SpanColumns
from otel_llmprism.exporters.store.span_rows import SpanRows
from otel_llmprism.exporters.store.store import StoreFullError
from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import MalformedRequestError
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.log_pace import LogPace
from otel_llmprism.pipeline.loss import count_loss
from otel_llmprism.semconv.pipeline import PIPELINE_ERRORS
from otel_llmprism.semconv.store import STORE_DUPLICATES, STORE_EVENTS, STORE_RETRIES, STORE_SPANS

_logger = logging.getLogger(__name__)
_RETRY = RetryConfig(initial_interval_s=0.05, max_interval_s=5.0)


class Store(Protocol):
    def write_spans(self, payload: bytes, rows: SpanRows) -> Written: ...

    def write_events(self, rows: list[EventRow]) -> int: ...


class DeadLetterBox(Protocol):
    def keep(self, signal: Signal, payload: bytes, cause: str) -> bool:
        """Keep the request if that can be done; counts no loss, never raises."""
        ...


class GroupWriter:
    """`wait` waits as many seconds as it is given; False from it means: stop trying."""

    def __init__(
        self,
        columns: SpanColumns,
        *,
        latest_metrics: LatestMetrics,
        counters: Counters,
        dead_letters: DeadLetterBox | None,
        wait: Callable[[float], bool],
        pace: LogPace,
    ) -> None:
        self._columns = columns
        self._latest_metrics = latest_metrics
        self._counters = counters
        self._dead_letters = dead_letters
        self._wait = wait
        self._pace = pace

    def write(self, store: Store, group: Sequence[Batch]) -> bool:
        """Write batches of one signal and settle them; False when told to stop: what is left is unsettled."""
        signal, payload = group[0].signal, b"".join(batch.payload for batch in group)
        try:
            if signal is Signal.METRICS:
                for batch in group:
                    self._latest_metrics.note_request(batch.payload)
            elif not self._write_patiently(store, signal, payload):
                return False
        except StoreFullError as error:  # no dead letter: it would most likely need room on the same disk
            self._count_loss("disk_full", signal, payload, error)
        except Exception as error:  # noqa: BLE001 - the pipeline must outlive a defect of ours; its cost is counted
            if len(group) > 1:  # find the bad one; the others are stored
                return all(self.write(store, [batch]) for batch in group)
            self._bury(signal, payload, error)
        for batch in group:
            self._settle(batch)
        return True

    def _write_patiently(self, store: Store, signal: Signal, payload: bytes) -> bool:
        backoff = Backoff(_RETRY, random.random)
        while True:
            try:
                self._write_payload(store, signal, payload)
            except sqlite3.Error as error:
                if not is_transient(error):
                    raise
                self._counters.add(STORE_RETRIES)
                if self._pace.is_due("retry"):
                    _logger.warning("the store takes no data now, retrying until it does: %s", error)
                if not self._wait(backoff.choose_delay(None)):
                    return False
            else:
                return True

    def _write_payload(self, store: Store, signal: Signal, payload: bytes) -> None:
        if signal is Signal.TRACES:
            rows = self._columns.read_rows(payload)
            if len(rows):
                written = store.write_spans(payload, rows)
                self._counters.add(STORE_SPANS, written.spans)
                self._counters.add(STORE_DUPLICATES, written.duplicates)
        elif events := read_events(payload):
            self._counters.add(STORE_EVENTS, store.write_events(events))

    def _settle(self, batch: Batch) -> None:
        try:
            batch.receipt.settle()
        except Exception:  # without this thread the whole pipeline waits
            self._counters.add(PIPELINE_ERRORS, part="store_settle")
            if self._pace.is_due("settle"):
                _logger.exception("the log could not free what the store has")

    def _bury(self, signal: Signal, payload: bytes, error: Exception) -> None:
        if self._dead_letters is not None:
            self._dead_letters.keep(signal, payload, f"the store refused it: {type(error).__name__}: {error}")
        cause = "malformed" if isinstance(error, MalformedRequestError) else "store_error"
        self._count_loss(cause, signal, payload, error)

    def _count_loss(self, cause: str, signal: Signal, payload: bytes, error: Exception) -> None:
        count_loss(self._counters, "store", cause, signal, payload)
        if self._pace.is_due(cause):  # a disk that stays full must not fill the log as well
            trace = error if cause == "store_error" else None
            _logger.error("the store lost records (%s): %s", cause, error, exc_info=trace)
