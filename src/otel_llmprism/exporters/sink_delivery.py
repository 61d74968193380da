# Brings one request to the backend, whatever it takes: retry for ever, split what is too large, dead
# letter for what will never be accepted. Knows no thread and no queue; waiting comes in.
import logging
import random
from collections.abc import Callable
from typing import Protocol

from otel_llmprism.exporters.otlp_client_result import SendResult, SendStatus
from otel_llmprism.exporters.retry import Backoff, RetryConfig
from otel_llmprism.exporters.sink_outage import OutageNotes
from otel_llmprism.exporters.sink_split import split_request
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.delivery import EGRESS_BYTES, EGRESS_RETRIES, EGRESS_SPLITS
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.semconv.pipeline import EGRESS_REQUESTS

_LOG = logging.getLogger(__name__)


class Client(Protocol):
    def send(self, signal: Signal, payload: bytes, timeout_s: float | None = None) -> SendResult: ...


class DeadLetterBox(Protocol):
    def write(self, signal: Signal, payload: bytes, cause: str) -> None:
        """Keep the request, or at least count it as lost; never raises."""
        ...


class Waiting(Protocol):
    """How a delivery waits between attempts, and learns that it must end."""

    def wait(self, delay_s: float, /) -> bool:
        """Wait; False means: give up, the request stays where it was accepted."""
        ...

    def limit_timeout(self) -> float | None:
        """Return the most seconds one attempt may take; None: as configured."""
        ...


class Delivery:
    """Thread-safe; one for all workers."""

    def __init__(
        self,
        client: Client,
        retry: RetryConfig,
        dead_letters: DeadLetterBox,
        counters: Counters,
        choose_random: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._retry = retry
        self._dead_letters = dead_letters
        self._counters = counters
        self._random = choose_random
        self._outage = OutageNotes(counters)

    def deliver(self, signal: Signal, payload: bytes, waiting: Waiting) -> bool:
        """Return True once the backend has it or it is counted as rejected; False when told to give up."""
        backoff: Backoff | None = None
        while True:
            result = self._attempt(signal, payload, waiting.limit_timeout())
            if result.status is SendStatus.DELIVERED or result.status is SendStatus.PARTIAL:
                self._note_success(signal, payload, result)
                return True
            if result.status is SendStatus.TOO_LARGE:
                return self._deliver_pieces(signal, payload, result, waiting)
            if result.status is SendStatus.PERMANENT:
                self._bury(signal, payload, result)
                return True
            self._counters.add(EGRESS_RETRIES, signal=signal)
            self._outage.note_failure(signal, result.message)
            backoff = backoff or Backoff(self._retry, self._random)
            if not waiting.wait(backoff.choose_delay(result.retry_after_s)):
                return False

    def _attempt(self, signal: Signal, payload: bytes, timeout_s: float | None) -> SendResult:
        try:
            return self._client.send(signal, payload, timeout_s)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the worker nor lose data
            _LOG.exception("sending failed in a way that it must not")
            return SendResult(SendStatus.PERMANENT, f"internal error: {type(error).__name__}")

    def _note_success(self, signal: Signal, payload: bytes, result: SendResult) -> None:
        self._counters.add(EGRESS_REQUESTS, signal=signal, outcome=result.status.value)
        self._counters.add(EGRESS_BYTES, len(payload), signal=signal)
        self._outage.note_success(signal)
        if result.rejected_count:
            self._counters.add(LOST, result.rejected_count, stage="export", cause="rejected_by_backend")
            self._outage.note_rejection(signal, f"{result.rejected_count} records: {result.message}")

    def _deliver_pieces(self, signal: Signal, payload: bytes, result: SendResult, waiting: Waiting) -> bool:
        pieces = split_request(signal, payload)
        if len(pieces) < 2:
            self._bury(signal, payload, result)
            return True
        self._counters.add(EGRESS_SPLITS, signal=signal)
        return all(self.deliver(signal, piece, waiting) for piece in pieces)

    def _bury(self, signal: Signal, payload: bytes, result: SendResult) -> None:
        self._counters.add(EGRESS_REQUESTS, signal=signal, outcome=result.status.value)
        self._outage.note_rejection(signal, result.message)
        self._dead_letters.write(signal, payload, result.message)
