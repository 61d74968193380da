# Requests on their way into the feed, like those of a receiver, so that the log covers them. What the feed
# refuses waits here, bounded; beyond that the oldest is counted as lost. Never blocks.
from collections import deque

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.loss import count_loss
from otel_llmprism.pipeline.ports import Ingress, Outcome
from otel_llmprism.service.sentinel.own_mark import add_mark

MAX_BYTES = 8 << 20


class Outbox:
    """One thread."""

    def __init__(self, ingress: Ingress, counters: Counters, max_bytes: int = MAX_BYTES) -> None:
        self._ingress = ingress
        self._counters = counters
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[Signal, bytes]] = deque()
        self._bytes = 0

    def put(self, signal: Signal, payload: bytes) -> None:
        self._waiting.append((signal, payload))
        self._bytes += len(payload)
        while self._bytes > self._max_bytes:
            self._lose("outbox_full")

    def flush(self) -> None:
        """Hand on what the feed takes now."""
        while self._waiting:
            signal, payload = self._waiting[0]
            if self._ingress.offer(signal, add_mark(payload)).outcome is not Outcome.ACCEPTED:
                return
            self._waiting.popleft()
            self._bytes -= len(payload)

    def close(self) -> None:
        """Hand on what can be, count the rest."""
        self.flush()
        while self._waiting:
            self._lose("shutdown")

    def _lose(self, cause: str) -> None:
        signal, payload = self._waiting.popleft()
        self._bytes -= len(payload)
        count_loss(self._counters, "sentinel", cause, signal, payload)
