# A receipt follows one accepted request through every piece cut from it. When the last piece is
# acknowledged downstream or counted as rejected, it tells its owner (the log) exactly once.
import threading
from collections.abc import Callable


class Receipt:
    """Thread-safe count of the pieces still on their way; starts with one piece."""

    __slots__ = ("_lock", "_on_settled", "_pieces")

    def __init__(self, on_settled: Callable[[], None]) -> None:
        self._on_settled = on_settled
        self._pieces = 1
        self._lock = threading.Lock()

    def add_pieces(self, count: int) -> None:
        """Say that `count` more pieces were cut. Only valid while a piece is still on its way."""
        with self._lock:
            if self._pieces == 0:
                raise RuntimeError("a settled receipt cannot take more pieces")
            self._pieces += count

    def settle(self) -> None:
        """Say that one piece arrived downstream or was counted as rejected."""
        with self._lock:
            if self._pieces == 0:
                raise RuntimeError("a receipt was settled more often than it has pieces")
            self._pieces -= 1
            is_last = self._pieces == 0
        if is_last:
            self._on_settled()
