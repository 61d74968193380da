# Requests on their way out: bounded queues in memory, one sender thread a signal, so that a signal
# nobody takes holds up no other. Loss is counted by cause; an outage is told once.
import logging
import random
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from otel_llmprism.exporters.otlp_client_result import SendResult, SendStatus
from otel_llmprism.exporters.retry import Backoff, RetryConfig
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv import metric as names

REFUSED_RETRY_S = 600.0  # an endpoint that has no such service is asked again so often
_SEND_TIMEOUT_S = 10.0
_log = logging.getLogger("otel_llmprism")


class Client(Protocol):
    def send(self, signal: Signal, payload: bytes, timeout_s: float | None = None) -> SendResult: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Parcel:
    """One request, ready to send; `kept` says what sort of spans it holds, empty for other signals."""

    signal: Signal
    payload: bytes
    records: int
    kept: str = ""


class _Lane:
    """One signal's queue and thread."""

    def __init__(self, signal: Signal, client: Client, counters: Counters, max_bytes: int) -> None:
        self._signal = signal
        self._client = client
        self._counters = counters
        self._max_bytes = max_bytes
        self._queue: deque[Parcel] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_ended = False
        self._refused_until_s = 0.0
        self._is_told = False
        self._thread = threading.Thread(target=self._run, name=f"send-{signal}", daemon=True)
        self._thread.start()

    def put(self, parcel: Parcel) -> None:
        with self._changed:
            if self._is_closing or self._bytes + len(parcel.payload) > self._max_bytes:
                self._lose(parcel, "queue_full")
                return
            self._queue.append(parcel)
            self._bytes += len(parcel.payload)
            self._changed.notify()

    def begin_close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def end_close(self, deadline_s: float) -> None:
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        with self._changed:
            self._is_ended = True
            self._changed.notify()
            for parcel in self._queue:
                self._lose(parcel, "not_drained")
            self._queue.clear()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._is_closing:
                    self._changed.wait()
                if not self._queue:
                    return
                parcel = self._queue[0]
            try:
                self._deliver(parcel)
            except Exception as error:  # noqa: BLE001  a thread that ends would lose all that comes after
                self._lose(parcel, "error")
                self._tell(f"sending {self._signal} failed: {type(error).__name__}: {error}")
            with self._changed:
                if self._queue:  # else closed meanwhile, and what was left is counted
                    self._bytes -= len(self._queue.popleft().payload)

    def _deliver(self, parcel: Parcel) -> None:
        if time.monotonic() < self._refused_until_s:
            self._lose(parcel, "refused")
            return
        backoff = Backoff(RetryConfig(), random.random)
        while not self._is_ended:
            result = self._client.send(self._signal, parcel.payload, _SEND_TIMEOUT_S)
            if result.status is not SendStatus.RETRYABLE:
                self._settle(parcel, result)
                return
            self._tell(f"the endpoint does not take {self._signal}, trying again: {result.message}")
            with self._changed:
                self._changed.wait_for(lambda: self._is_ended, backoff.choose_delay(result.retry_after_s))

    def _settle(self, parcel: Parcel, result: SendResult) -> None:
        if result.status in {SendStatus.DELIVERED, SendStatus.PARTIAL}:
            self._is_told = False
            self._counters.add(
                names.EXPORT_BYTES, len(parcel.payload), signal=str(parcel.signal), kept=parcel.kept
            )
            if result.rejected_count:
                self._counters.add(names.LOST, result.rejected_count, stage="send", cause="rejected")
            return
        self._lose(parcel, "refused" if result.is_missing_service else str(result.status.value))
        if result.is_missing_service:
            self._refused_until_s = time.monotonic() + REFUSED_RETRY_S
            where = "; the ledger stays on disk" if self._signal is Signal.LOGS else ""
            self._tell(f"the endpoint has no service for {self._signal}{where}: {result.message}")
        else:
            self._tell(f"the endpoint rejected {self._signal}: {result.message}")

    def _lose(self, parcel: Parcel, cause: str) -> None:
        self._counters.add(names.LOST, parcel.records, stage="send", cause=cause)

    def _tell(self, text: str) -> None:
        if not self._is_told:
            self._is_told = True
            _log.warning("llmprism exporter: %s", text)


class Outbox:
    """Takes parcels from one thread; never blocks it."""

    def __init__(self, client: Client, counters: Counters, max_bytes: int) -> None:
        self._client = client
        self._lanes = {signal: _Lane(signal, client, counters, max_bytes) for signal in Signal}

    def put(self, parcel: Parcel) -> None:
        self._lanes[parcel.signal].put(parcel)

    def close(self, deadline_s: float) -> None:
        """Send what is queued until `deadline_s` (time.monotonic); count what is left as lost."""
        for lane in self._lanes.values():
            lane.begin_close()
        for lane in self._lanes.values():
            lane.end_close(deadline_s)
        self._client.close()
