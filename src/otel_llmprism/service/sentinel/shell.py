# The sentinel's thread: takes ledgers from the queue, gives them to the core with the time, hands its news to
# the desk; lets time pass twice a second. A Source: it starts with the receivers and stops with them.
import logging
import threading
import time
from collections.abc import Callable

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch
from otel_llmprism.semconv.pipeline import PIPELINE_ERRORS
from otel_llmprism.service.sentinel.core import SentinelCore
from otel_llmprism.service.sentinel.desk import Desk
from otel_llmprism.service.sentinel.ledger_queue import Arrival, LedgerQueue
from otel_llmprism.service.sentinel.outbox import Outbox

_LOG = logging.getLogger(__name__)
_TICK_NS = 500_000_000
_METRICS_NS = 10_000_000_000
_SAVE_NS = 60_000_000_000
_WAIT_S = 0.1
Clock = Callable[[], int]


class SentinelShell:
    """Joins queue, core and desk; `save` keeps the state."""

    def __init__(
        self,
        queue: LedgerQueue,
        core: SentinelCore,
        desk: Desk,
        outbox: Outbox,
        *,
        prepare: Callable[[LedgerBatch | HostBatch], None],
        save: Callable[[], None],
        follow_orders: Callable[[int], None],
        close: Callable[[], None],
        counters: Counters,
        realtime_ns: Clock = time.time_ns,
        monotonic_ns: Clock = time.monotonic_ns,
    ) -> None:
        self._queue = queue
        self._core = core
        self._desk = desk
        self._outbox = outbox
        self._prepare = prepare
        self._save = save
        self._follow_orders = follow_orders
        self._close = close
        self._counters = counters
        self._realtime_ns = realtime_ns
        self._monotonic_ns = monotonic_ns
        self._is_stopping = threading.Event()
        self._told: set[str] = set()
        self._next_tick_ns = self._next_metrics_ns = self._next_save_ns = 0
        self._thread = threading.Thread(target=self._run, name="llmprism-sentinel", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, deadline_ns: int) -> None:
        """Take what waits until the deadline, say what there is to say, keep the state."""
        self._queue.close()
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join(max(0.0, (deadline_ns - self._monotonic_ns()) / 1e9))
        self._close()

    def _run(self) -> None:
        now_ns = self._monotonic_ns()
        self._next_tick_ns, self._next_metrics_ns = now_ns + _TICK_NS, now_ns + _METRICS_NS
        self._next_save_ns = now_ns + _SAVE_NS
        while self._take_one():
            self._guard(self._tick)
        self._guard(self._finish)

    def _take_one(self) -> bool:
        """Return whether there may be more."""
        arrival = self._queue.take(_WAIT_S)
        if arrival is None:
            return not self._is_stopping.is_set()
        self._guard(lambda: self._take(arrival))
        return True

    def _take(self, arrival: Arrival) -> None:
        self._prepare(arrival.batch)
        news = self._core.take(arrival.batch, arrival.arrived_ns)
        self._desk.take(news, self._realtime_ns(), self._monotonic_ns())

    def _tick(self) -> None:
        now_ns = self._monotonic_ns()
        if now_ns >= self._next_tick_ns:
            self._next_tick_ns = now_ns + _TICK_NS
            self._follow_orders(self._realtime_ns())
            realtime_ns = self._realtime_ns()
            self._desk.take(self._core.advance(realtime_ns), realtime_ns, now_ns)
            self._desk.show_engines()
            self._queue.record_gauge()
        if now_ns >= self._next_metrics_ns:
            self._next_metrics_ns = now_ns + _METRICS_NS
            self._desk.send_metrics(self._realtime_ns())
        if now_ns >= self._next_save_ns:
            self._next_save_ns = now_ns + _SAVE_NS
            self._save()
        self._outbox.flush()

    def _finish(self) -> None:
        realtime_ns = self._realtime_ns()
        self._follow_orders(realtime_ns)
        self._desk.take(self._core.advance(realtime_ns), realtime_ns, self._monotonic_ns())
        self._desk.send_metrics(realtime_ns)
        self._save()
        self._outbox.close()

    def _guard(self, act: Callable[[], None]) -> None:
        """Whatever fails is counted, said once, and costs nothing else."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - without this thread nothing is watched
            self._counters.add(PIPELINE_ERRORS, part="sentinel")
            name = f"{type(error).__name__}: {error}"
            if len(self._told) < 20 and name not in self._told:
                self._told.add(name)
                _LOG.warning("the sentinel goes on after %s", name, exc_info=error)
