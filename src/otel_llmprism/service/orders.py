# What signals ask of a service, as its main thread waits for it. Knows neither signals nor services.
import contextlib
import queue
from typing import TypeVar

_PIECE_S = 0.5

T = TypeVar("T")


def await_order(orders: "queue.SimpleQueue[T]") -> T:
    """Return the next order; called by the main thread, filled by signal handlers.

    Handlers run in the main thread alone, between two of its instructions. A signal that reaches another
    thread, or this one just before it falls asleep, wakes nobody: hence a wait in pieces.
    """
    while True:
        with contextlib.suppress(queue.Empty):
            return orders.get(timeout=_PIECE_S)
