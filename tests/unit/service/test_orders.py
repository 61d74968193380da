# Waiting for what signals ask.
import queue
import signal
import threading
from collections.abc import Iterator

import pytest

from otel_llmprism.service.orders import await_order


@pytest.fixture
def orders() -> Iterator["queue.SimpleQueue[str]"]:
    """Filled by SIGUSR1."""
    found: queue.SimpleQueue[str] = queue.SimpleQueue()
    before = signal.signal(signal.SIGUSR1, lambda *_: found.put("from the signal"))
    yield found
    signal.signal(signal.SIGUSR1, before)


def test_order_that_is_there_is_returned_at_once(orders: "queue.SimpleQueue[str]") -> None:
    orders.put("first")
    orders.put("second")
    assert await_order(orders) == "first"


def test_signal_that_another_thread_gets_is_noticed(orders: "queue.SimpleQueue[str]") -> None:
    def signal_itself() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    later = threading.Timer(0.1, signal_itself)  # the main thread waits by then
    later.start()
    assert await_order(orders) == "from the signal"
    later.join()
