# What bounds the intake: the size of one request, how many at a time, and how long one may take to
# arrive. `max_request_bytes * max_concurrent` is the most memory that requests in arrival can take.
import threading
from dataclasses import dataclass

from otel_llmprism.config.errors import ConfigError

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    max_request_bytes: int = 16 * MIB  # as sent, and again after decompression
    max_concurrent: int = 32
    receive_timeout_s: float = 30.0  # from the headers to the last byte
    retry_after_s: float = 1.0  # said to clients refused for max_concurrent

    def __post_init__(self) -> None:
        """Refuse what could never serve a request."""
        if self.max_request_bytes < 1 or self.max_concurrent < 1:
            raise ConfigError("limits: max_request_bytes and max_concurrent must be at least 1")
        if self.receive_timeout_s <= 0 or self.retry_after_s <= 0:
            raise ConfigError("limits: receive_timeout_s and retry_after_s must be above 0")


class Gate:
    """Counts who is inside; refuses beyond its capacity instead of queueing. Thread-safe."""

    def __init__(self, capacity: int) -> None:
        self._slots = threading.Semaphore(capacity)

    def try_enter(self) -> bool:
        """Take a place if there is one; whoever got one must leave()."""
        return self._slots.acquire(blocking=False)

    def leave(self) -> None:
        self._slots.release()
