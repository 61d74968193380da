# Says once that a backend fails, and once that it takes data again, however many requests are affected.
import logging
import threading

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.delivery import EGRESS_FAILING

_LOG = logging.getLogger(__name__)


class OutageNotes:
    """Thread-safe. The metrics count every case; the log tells each change."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._lock = threading.Lock()
        self._failing: set[Signal] = set()
        self._rejected: dict[Signal, str] = {}

    def note_failure(self, signal: Signal, message: str) -> None:
        """Note an attempt that will be repeated."""
        with self._lock:
            if signal in self._failing:
                return
            self._failing.add(signal)
        self._counters.set(EGRESS_FAILING, 1, signal=signal)
        _LOG.warning("backend does not take %s, retrying until it does: %s", signal.value, message)

    def note_success(self, signal: Signal) -> None:
        """Note an accepted request."""
        if not self._failing and not self._rejected:
            return
        with self._lock:
            was_failing = signal in self._failing
            self._failing.discard(signal)
        if was_failing:
            self._counters.set(EGRESS_FAILING, 0, signal=signal)
            _LOG.info("backend takes %s again", signal.value)

    def note_rejection(self, signal: Signal, message: str) -> None:
        """Note data that will never be accepted; the same words are logged once in a row."""
        with self._lock:
            if self._rejected.get(signal) == message:
                return
            self._rejected[signal] = message
        _LOG.warning("backend rejected %s for good: %s", signal.value, message)
