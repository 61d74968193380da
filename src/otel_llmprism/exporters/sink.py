# The end of the pipeline that speaks OTLP: several requests in flight, each brought to its end by one
# worker thread; settles receipts. Order between batches is not kept. Knows no stage.
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from otel_llmprism.exporters.sink_delivery import Delivery
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.delivery import EGRESS_IN_FLIGHT

_LOG = logging.getLogger(__name__)
_BREAK_OFF_NS = 500_000_000
# A worker that does not notice in time that its connection was closed is a daemon and may be left behind.
_LEAST_JOIN_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightConfig:
    """How much may be on its way at once; `send` waits when either bound is reached."""

    requests: int = 10
    max_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        """Refuse bounds under which nothing moves."""
        if self.requests < 1 or self.max_bytes < 1:
            raise ValueError("in_flight: requests and max_bytes must be at least 1")


class OtlpSink:
    """Implements ports.Sink; `close_client` ends the calls in flight."""

    def __init__(
        self,
        config: InFlightConfig,
        delivery: Delivery,
        close_client: Callable[[], None],
        counters: Counters,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._config = config
        self._delivery = delivery
        self._close_client = close_client
        self._counters = counters
        self._monotonic_ns = monotonic_ns
        # Handing over through a C queue and a lock of its own wakes one worker, not all of them.
        self._handed_over: SimpleQueue[Batch | None] = SimpleQueue()
        self._freed = threading.Condition(threading.Lock())
        self._count = 0
        self._bytes = 0
        self._unsent: list[Batch] = []
        self._heir: Callable[[Batch], None] | None = None
        self._workers: list[threading.Thread] = []
        self._stop = _Stop(monotonic_ns)

    def start(self) -> None:
        for index in range(self._config.requests):
            worker = threading.Thread(target=self._run_worker, name=f"otlp-sink-{index}", daemon=True)
            self._workers.append(worker)
            worker.start()

    def send(self, batch: Batch, /) -> None:
        if not self.try_send(batch):
            self._give_back(batch)

    def try_send(self, batch: Batch, *, waits_for_room: bool = True) -> bool:
        """Take over `batch`; False when the sink stops: the batch stays with the caller.

        Without the wait the bounds may be passed: for what another sink held within bounds of its own.
        """
        size = len(batch.payload)
        with self._freed:
            while waits_for_room and not self._stop.is_asked() and not self._has_room(size):
                self._freed.wait()
            if self._stop.is_asked():
                return False
            self._count += 1
            self._bytes += size
            self._handed_over.put(batch)  # under the lock: nothing is put after the queue was emptied
        return True

    def stop(self, deadline_ns: int) -> None:
        self._end(deadline_ns, may_retry=True)

    def hand_over(self, deadline_ns: int, heir: Callable[[Batch], None]) -> None:
        """Stop, letting attempts finish but beginning none; `heir` gets what did not reach its end."""
        self._end(deadline_ns, may_retry=False)
        with self._freed:
            self._heir = heir
        for batch in self.take_unsent():
            heir(batch)

    def take_unsent(self) -> list[Batch]:
        """Give, after stop, the batches that did not reach their end; their receipts are unsettled."""
        with self._freed:
            unsent, self._unsent = self._unsent, []
        return unsent

    def record_gauges(self) -> None:
        """Set the gauge of requests in flight."""
        with self._freed:
            count = self._count
        self._counters.set(EGRESS_IN_FLIGHT, count)

    def _end(self, deadline_ns: int, *, may_retry: bool) -> None:
        # Breaking off what hangs takes a moment too, and must be over by the deadline.
        left_ns = max(0, deadline_ns - self._monotonic_ns())
        break_off_ns = deadline_ns - min(_BREAK_OFF_NS, left_ns // 4)
        with self._freed:
            self._stop.ask(break_off_ns, may_retry=may_retry)
            self._freed.notify_all()
            while self._count and self._workers and (left_s := self._measure_left(break_off_ns)) > 0:
                self._freed.wait(left_s)
        self._stop.end()
        self._empty_queue()
        self._close_client()
        for _ in self._workers:
            self._handed_over.put(None)
        for worker in self._workers:
            worker.join(max(_LEAST_JOIN_S, self._measure_left(deadline_ns)))
        self._workers.clear()

    def _measure_left(self, until_ns: int) -> float:
        return (until_ns - self._monotonic_ns()) / 1e9

    def _has_room(self, size: int) -> bool:
        # One request may be larger than the byte bound; alone it always passes.
        has_bytes = self._count == 0 or self._bytes + size <= self._config.max_bytes
        return self._count < self._config.requests and has_bytes

    def _run_worker(self) -> None:
        while (batch := self._handed_over.get()) is not None:
            if not self._bring_to_end(batch):
                self._give_back(batch)
            with self._freed:
                self._count -= 1
                self._bytes -= len(batch.payload)
                self._freed.notify_all()

    def _bring_to_end(self, batch: Batch) -> bool:
        try:
            if not self._delivery.deliver(batch.signal, batch.payload, self._stop):
                return False
            batch.receipt.settle()
        except Exception:  # noqa: BLE001 - the log keeps the batch, the worker lives on
            _LOG.exception("a batch could not be brought to its end")
        return True

    def _give_back(self, batch: Batch) -> None:
        with self._freed:
            heir = self._heir
            if heir is None:
                self._unsent.append(batch)
        if heir is not None:  # a worker that was left behind when the sink handed over
            heir(batch)

    def _empty_queue(self) -> None:
        try:
            while (batch := self._handed_over.get_nowait()) is not None:
                self._give_back(batch)
        except Empty:
            return


class _Stop:
    """The stop request as deliveries see it (sink_delivery.Waiting)."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._deadline_ns: int | None = None
        self._may_retry = True
        self._asked = threading.Event()
        self._ended = threading.Event()

    def is_asked(self) -> bool:
        return self._deadline_ns is not None

    def ask(self, deadline_ns: int, *, may_retry: bool) -> None:
        self._may_retry = may_retry
        self._deadline_ns = deadline_ns
        self._asked.set()

    def end(self) -> None:
        self._ended.set()

    def wait(self, delay_s: float, /) -> bool:
        if self._deadline_ns is None:
            # Being asked to stop ends the wait early: one more attempt is made at once.
            self._asked.wait(delay_s)
            return self._may_retry
        if not self._may_retry or self._monotonic_ns() + delay_s * 1e9 >= self._deadline_ns:
            return False
        return not self._ended.wait(delay_s)

    def limit_timeout(self) -> float | None:
        if self._deadline_ns is None:
            return None
        return max(0.001, (self._deadline_ns - self._monotonic_ns()) / 1e9)
