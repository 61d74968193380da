import threading

from otel_llmprism.pipeline.queue import BatchQueue
from otel_llmprism.testing.contracts import build_batch


def fill(queue: BatchQueue, *payloads: bytes) -> list[bool]:
    return [queue.put(build_batch(payload)[0]) for payload in payloads]


def drain(queue: BatchQueue) -> list[bytes]:
    taken = []
    while batch := queue.take(0):
        taken.append(batch.payload)
    return taken


def test_batches_leave_in_the_order_they_came() -> None:
    queue = BatchQueue(max_bytes=100, max_count=10)
    assert fill(queue, b"a", b"b", b"c") == [True, True, True]
    assert drain(queue) == [b"a", b"b", b"c"]


def test_queue_refuses_beyond_its_bytes_and_takes_again_when_drained() -> None:
    queue = BatchQueue(max_bytes=10, max_count=10)
    assert fill(queue, b"x" * 6, b"y" * 5, b"z" * 4) == [True, False, True]
    assert drain(queue) == [b"x" * 6, b"z" * 4]
    assert fill(queue, b"y" * 5) == [True]


def test_queue_refuses_beyond_its_count() -> None:
    queue = BatchQueue(max_bytes=100, max_count=2)
    assert fill(queue, b"a", b"b", b"c") == [True, True, False]


def test_empty_queue_takes_a_payload_above_its_bound_so_that_it_cannot_starve() -> None:
    queue = BatchQueue(max_bytes=3, max_count=2)
    assert fill(queue, b"large", b"a") == [True, False]


def test_closed_queue_refuses_but_gives_what_it_holds() -> None:
    queue = BatchQueue(max_bytes=100, max_count=10)
    fill(queue, b"a")
    queue.close()
    assert fill(queue, b"b") == [False]
    assert drain(queue) == [b"a"]


def test_closing_wakes_a_waiting_taker() -> None:
    queue = BatchQueue(max_bytes=100, max_count=10)
    taker = threading.Thread(target=queue.take, args=(60.0,))
    taker.start()
    queue.close()
    taker.join(10)
    assert not taker.is_alive()


def test_many_putters_and_one_taker_lose_nothing() -> None:
    queue = BatchQueue(max_bytes=1 << 20, max_count=10_000)
    putters = [
        threading.Thread(target=fill, args=(queue, *(b"%d-%d" % (putter, i) for i in range(200))))
        for putter in range(8)
    ]
    for putter in putters:
        putter.start()
    taken: list[bytes] = []
    while len(taken) < 1600 and (batch := queue.take(10)):
        taken.append(batch.payload)
    for putter in putters:
        putter.join()
    assert sorted(taken) == sorted(b"%d-%d" % (p, i) for p in range(8) for i in range(200))
    assert queue.measure() == (0, 0, None)
