# A clock that only a test moves. Comes in wherever a `monotonic_ns` callable is asked for.
import threading


class FakeClock:
    """Call it for the time in ns; `advance` moves it. Thread-safe."""

    def __init__(self, now_ns: int = 1_000_000_000) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()

    def __call__(self) -> int:
        with self._lock:
            return self._now_ns

    def advance(self, *, seconds: float = 0.0, ns: int = 0) -> int:
        """Move forward and give the new time."""
        with self._lock:
            self._now_ns += int(seconds * 1e9) + ns
            return self._now_ns
