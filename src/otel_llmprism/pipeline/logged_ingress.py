# Acceptance behind the write-ahead log. Payloads wait in the queue while it has room; beyond that they
# lie in the log alone and are read back in turn, so memory stays flat however long a backend is down.
# Knows neither receivers nor stages.
import errno
import threading
import time
from collections.abc import Callable
from functools import partial

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress_config import Durability, IngressConfig
from otel_llmprism.pipeline.log.appender import Position
from otel_llmprism.pipeline.log.errors import LogFullError
from otel_llmprism.pipeline.log.reader import LogRecord
from otel_llmprism.pipeline.log.write_ahead_log import WriteAheadLog
from otel_llmprism.pipeline.loss import count_loss
from otel_llmprism.pipeline.ports import ACCEPTED, Outcome, Verdict
from otel_llmprism.pipeline.queue import BatchQueue
from otel_llmprism.pipeline.receipt import Receipt
from otel_llmprism.pipeline.signal_numbers import NUMBERS, SIGNALS
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.semconv.pipeline import (
    INGRESS_BYTES,
    INGRESS_REQUESTS,
    LOG_BYTES,
    LOG_REPLAYED,
    OLDEST_AGE,
    QUEUE_BYTES,
    QUEUE_REQUESTS,
)


class LoggedIngress:
    """Implements ports.Ingress and ingress.Feed. `offer` may wait for the disk: not for an event loop."""

    def __init__(
        self,
        config: IngressConfig,
        counters: Counters,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        realtime_ns: Callable[[], int] = time.time_ns,
        log: WriteAheadLog | None = None,
    ) -> None:
        self._config = config
        self._counters = counters
        self._monotonic_ns = monotonic_ns
        self._realtime_ns = realtime_ns
        self._log = log or WriteAheadLog(
            config.require_log(),
            counters,
            is_synced=config.durability is Durability.HOST,
            realtime_ns=realtime_ns,
        )
        self._queue = BatchQueue(config.queue_bytes, config.queue_requests)
        self._lock = threading.Lock()  # makes "append, then enqueue or spill" one step
        self._is_open = False
        self._is_spilling = True
        self._last_accepted_ns = 0

    def start(self) -> None:
        self._log.open()
        with self._lock:
            self._queue = BatchQueue(self._config.queue_bytes, self._config.queue_requests)
            self._is_spilling = True  # what an earlier run left goes first
            self._is_open = True

    def offer(self, signal: Signal, payload: bytes, /) -> Verdict:
        verdict = self._accept(signal, payload)
        self._counters.add(INGRESS_REQUESTS, signal=signal, outcome=verdict.outcome.value)
        if verdict.outcome is Outcome.ACCEPTED:
            self._counters.add(INGRESS_BYTES, len(payload), signal=signal)
        return verdict

    def take(self, timeout_s: float, /) -> Batch | None:
        batch = self._queue.take(0 if self._is_spilling else timeout_s)
        if batch is not None or not self._is_spilling:
            return batch
        while (record := self._read_record()) is not None:
            if (batch := self._to_batch(record)) is not None:
                return batch
        return None

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            self._queue.close()

    def release(self) -> None:
        self.close()
        self._queue.empty_out()
        self._log.close()

    def record_gauges(self, now_ns: int, /) -> None:
        size, count, oldest_ns = self._queue.measure()
        age_ns = 0 if oldest_ns is None else now_ns - oldest_ns
        if oldest_ns is None and self._is_spilling and self._last_accepted_ns:
            age_ns = max(0, self._realtime_ns() - self._last_accepted_ns)
        self._counters.set(QUEUE_BYTES, size)
        self._counters.set(QUEUE_REQUESTS, count)
        self._counters.set(OLDEST_AGE, age_ns / 1e9)
        self._counters.set(LOG_BYTES, self._log.measure())

    def _accept(self, signal: Signal, payload: bytes) -> Verdict:
        try:
            with self._lock:
                if not self._is_open:
                    return self._refuse(Outcome.UNAVAILABLE, "starting or draining")
                position = self._log.append(NUMBERS[signal], payload)
                self._enqueue(signal, payload, position)
            position.wait_durable()
        except LogFullError as error:
            return self._refuse(Outcome.BUSY, str(error))
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            return self._refuse(
                Outcome.BUSY if is_full else Outcome.UNAVAILABLE, f"the log cannot be written: {error}"
            )
        return ACCEPTED

    def _enqueue(self, signal: Signal, payload: bytes, position: Position) -> None:
        if self._is_spilling:
            return
        receipt = Receipt(partial(self._log.free, position.segment, position.sequence))
        if not self._queue.put(Batch(signal, payload, receipt, self._monotonic_ns())):
            self._log.read_from(position)
            self._is_spilling = True

    def _refuse(self, outcome: Outcome, why: str) -> Verdict:
        return Verdict(outcome, self._config.retry_after_s, why)

    def _read_record(self) -> LogRecord | None:
        record = self._log.read_next()
        if record is None:
            with self._lock:  # nothing is appended meanwhile, so None now means caught up
                record = self._log.read_next(is_last=True)
                self._is_spilling = record is not None
        return record

    def _to_batch(self, record: LogRecord) -> Batch | None:
        """Give the batch of a record; None when it must not go on (counted and freed)."""
        self._last_accepted_ns = record.accepted_ns
        signal = SIGNALS.get(record.signal)
        if signal is None:
            self._counters.add(LOST, stage="log", cause="unknown_signal")
        elif self._is_too_old(record, signal):
            count_loss(self._counters, "log", "aged", signal, record.payload)
        else:
            if record.segment.is_of_earlier_run:
                self._counters.add(LOG_REPLAYED, signal=signal)
            receipt = Receipt(partial(self._log.free, record.segment, record.sequence))
            return Batch(signal, record.payload, receipt, self._monotonic_ns())
        self._log.free(record.segment, record.sequence)
        return None

    def _is_too_old(self, record: LogRecord, signal: Signal) -> bool:
        """Only what an earlier run may have sent already can arrive twice; only sums suffer from it."""
        if signal is not Signal.METRICS or not record.segment.is_of_earlier_run:
            return False
        return self._realtime_ns() - record.accepted_ns > self._config.replay_metrics_max_age_s * 1e9
