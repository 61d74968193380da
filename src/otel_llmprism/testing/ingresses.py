# An Ingress for receiver tests: remembers what was offered and answers as told.
import threading

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.ports import ACCEPTED, Verdict


class RecordingIngress:
    """Keeps every accepted (signal, payload); `verdict` may be changed at any time."""

    def __init__(self, verdict: Verdict = ACCEPTED) -> None:
        self.verdict = verdict
        self.offers: list[tuple[Signal, bytes]] = []
        self._changed = threading.Condition()

    def offer(self, signal: Signal, payload: bytes, /) -> Verdict:
        with self._changed:
            if self.verdict is ACCEPTED:
                self.offers.append((signal, payload))
                self._changed.notify_all()
            return self.verdict

    def wait_for_count(self, count: int, timeout_s: float = 10.0) -> bool:
        """Wait until `count` requests were accepted; False when `timeout_s` passed before that."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.offers) >= count, timeout_s)
