# Acceptance without a log: a bounded queue, lost with the process. A full queue is BUSY.
import threading
from collections.abc import Callable

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress_config import IngressConfig
from otel_llmprism.pipeline.loss import count_loss
from otel_llmprism.pipeline.ports import ACCEPTED, Outcome, Verdict
from otel_llmprism.pipeline.queue import BatchQueue
from otel_llmprism.pipeline.receipt import Receipt
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.semconv.pipeline import (
    INGRESS_BYTES,
    INGRESS_REQUESTS,
    OLDEST_AGE,
    QUEUE_BYTES,
    QUEUE_REQUESTS,
)


class MemoryIngress:
    """Implements ports.Ingress and ingress.Feed over a BatchQueue alone."""

    def __init__(self, config: IngressConfig, counters: Counters, monotonic_ns: Callable[[], int]) -> None:
        self._config = config
        self._counters = counters
        self._monotonic_ns = monotonic_ns
        self._queue: BatchQueue | None = None
        self._unsettled = _Tally()

    def start(self) -> None:
        self._queue = BatchQueue(self._config.queue_bytes, self._config.queue_requests)

    def offer(self, signal: Signal, payload: bytes, /) -> Verdict:
        verdict = self._decide(signal, payload)
        self._counters.add(INGRESS_REQUESTS, signal=signal, outcome=verdict.outcome.value)
        if verdict.outcome is Outcome.ACCEPTED:
            self._counters.add(INGRESS_BYTES, len(payload), signal=signal)
        return verdict

    def take(self, timeout_s: float, /) -> Batch | None:
        return self._queue.take(timeout_s) if self._queue else None

    def close(self) -> None:
        if self._queue:
            self._queue.close()

    def release(self) -> None:
        self.close()
        if self._queue:
            for batch in self._queue.empty_out():
                count_loss(self._counters, "queue", "shutdown", batch.signal, batch.payload)
                batch.receipt.settle()
        if self._unsettled.count:  # their payloads are gone: each stands for at least one record
            self._counters.add(LOST, self._unsettled.count, stage="export", cause="shutdown")
        self._unsettled = _Tally()  # late settlements of this run must not touch the next

    def record_gauges(self, now_ns: int, /) -> None:
        size, count, oldest_ns = self._queue.measure() if self._queue else (0, 0, None)
        self._counters.set(QUEUE_BYTES, size)
        self._counters.set(QUEUE_REQUESTS, count)
        self._counters.set(OLDEST_AGE, 0.0 if oldest_ns is None else (now_ns - oldest_ns) / 1e9)

    def _decide(self, signal: Signal, payload: bytes) -> Verdict:
        if self._queue is None:
            return Verdict(Outcome.UNAVAILABLE, self._config.retry_after_s, "starting")
        batch = Batch(signal, payload, Receipt(self._unsettled.lower), self._monotonic_ns())
        self._unsettled.rise()
        if self._queue.put(batch):
            return ACCEPTED
        batch.receipt.settle()
        if self._queue.is_closed():
            return Verdict(Outcome.UNAVAILABLE, self._config.retry_after_s, "draining")
        return Verdict(
            Outcome.BUSY,
            self._config.retry_after_s,
            f"the queue holds its {self._config.queue_bytes} bytes or {self._config.queue_requests} requests",
        )


class _Tally:
    """Counts up and down from any thread."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def rise(self) -> None:
        with self._lock:
            self.count += 1

    def lower(self) -> None:
        with self._lock:
            self.count -= 1
