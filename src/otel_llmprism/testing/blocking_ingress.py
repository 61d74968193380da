# An Ingress that keeps its callers waiting until it is told to go on: for tests of bounds and shutdown.
import threading

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.ports import ACCEPTED, Verdict


class BlockingIngress:
    """Accepts everything, once released; `wait_for_inside` tells how many wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_released = False
        self._inside_count = 0
        self.accepted: list[tuple[Signal, bytes]] = []

    def offer(self, signal: Signal, payload: bytes, /) -> Verdict:
        with self._changed:
            self._inside_count += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_released)
            self._inside_count -= 1
            self.accepted.append((signal, payload))
        return ACCEPTED

    def wait_for_inside(self, count: int, timeout_s: float = 10.0) -> None:
        """Return once `count` callers wait; raises TimeoutError after a while."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._inside_count >= count, timeout_s):
                raise TimeoutError(f"{self._inside_count} of {count} callers came")

    def release(self) -> None:
        """Let everyone go on, now and later."""
        with self._changed:
            self._is_released = True
            self._changed.notify_all()
