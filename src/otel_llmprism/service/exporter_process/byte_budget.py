# How many bytes of step spans may still leave: a token bucket that everything exported draws on, and
# that only step spans must ask. Time comes in.
_NS_PER_S = 1e9


class ByteBudget:
    """Ledger, metrics and request spans draw without asking; what they take, step spans do not get."""

    def __init__(self, bytes_per_s: float, burst_s: float, now_ns: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._capacity = bytes_per_s * burst_s
        self._available = self._capacity
        self._at_ns = now_ns

    def draw(self, size: int, now_ns: int) -> None:
        """Take `size` bytes that leave in any case; the debt is at most one burst."""
        self._refill(now_ns)
        self._available = max(self._available - size, -self._capacity)

    def try_draw(self, size: int, now_ns: int) -> bool:
        """Take `size` bytes if they are there; False means: drop, and count it."""
        self._refill(now_ns)
        if size > self._available:
            return False
        self._available -= size
        return True

    def _refill(self, now_ns: int) -> None:
        gained = max(0, now_ns - self._at_ns) / _NS_PER_S * self._bytes_per_s
        self._available = min(self._capacity, self._available + gained)
        self._at_ns = max(now_ns, self._at_ns)
