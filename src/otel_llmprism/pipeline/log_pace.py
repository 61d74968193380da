# How often one and the same trouble may be logged: counters count every case, the log tells it now and then.
import threading
from collections.abc import Callable

_AGAIN_NS = 60 * 10**9


class LogPace:
    """Thread-safe; remembers one time per key, so keys must be a closed set."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._last_ns: dict[str, int] = {}
        self._lock = threading.Lock()

    def is_due(self, key: str) -> bool:
        """Tell whether `key` was not told in the last minute; if so, it counts as told now."""
        now_ns = self._monotonic_ns()
        with self._lock:
            last_ns = self._last_ns.get(key)
            if last_ns is not None and now_ns - last_ns < _AGAIN_NS:
                return False
            self._last_ns[key] = now_ns
            return True
