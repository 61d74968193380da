from collections.abc import Callable
from typing import Any

import pytest

from otel_llmprism.instrumentation.collective_window import Collective, CollectiveWindow
from otel_llmprism.instrumentation.rank_watch import RankWatch
from otel_llmprism.native.ring_records import UNKNOWN_NS, CollectiveOp, Kind
from otel_llmprism.testing.fake_device import FakeDevice
from otel_llmprism.testing.list_ring import ListRing

MS_NS = 1_000_000
GROUP = 7


def call(
    window: CollectiveWindow, said: Collective | None, body: Callable[[], Any] = lambda: None
) -> Callable[[], Any]:
    """A wrapped collective, as the hooks make it."""

    def wrapped() -> Any:
        if window.recorder is None:
            return body()
        return window.watch_call(lambda _args, _kwargs: said, body, (), {})

    return wrapped


ON_HOST = Collective(CollectiveOp.ALL_REDUCE, GROUP, 4096)
ON_DEVICE = Collective(CollectiveOp.ALL_REDUCE, GROUP, 4096, is_on_device=True)


def test_collectives_of_sampled_and_of_deep_steps_are_recorded(
    device: FakeDevice, ring: ListRing, window: CollectiveWindow, watch: RankWatch
) -> None:
    device.is_there = False
    reduce = call(window, ON_HOST)
    for step, is_deep in ((0, False), (1, False), (2, False), (3, True)):
        watch.begin(step, is_deep=is_deep)
        reduce()
        watch.end(step, 0, 1)
        reduce()
    assert [record["step"] for record in ring.read(Kind.COLLECTIVE)] == [0, 2, 3]
    waits = {int(rank["step"]): int(rank["wait_ns"]) for rank in ring.read(Kind.STEP_RANK)}
    assert waits[1] == UNKNOWN_NS
    for record in ring.read(Kind.COLLECTIVE):
        assert waits[int(record["step"])] == record["end_ns"] - record["start_ns"]


def test_a_collective_comes_before_the_rank_that_completes_its_step(
    ring: ListRing, window: CollectiveWindow, watch: RankWatch
) -> None:
    watch.begin(0)
    call(window, ON_DEVICE)()
    watch.end(0, 0, 1)
    watch.flush()
    assert ring.list_kinds() == [Kind.COLLECTIVE, Kind.STEP_RANK]


def test_on_a_device_the_host_clock_says_nothing_and_events_do(
    device: FakeDevice, ring: ListRing, window: CollectiveWindow, watch: RankWatch
) -> None:
    watch.begin(0)
    for _ in range(3):
        call(window, ON_DEVICE)()
    watch.end(0, 5, 6)
    assert ring.records == []
    device.done = device.recorded
    watch.begin(1)
    assert [(row["start_ns"], row["device_ns"]) for row in ring.read(Kind.COLLECTIVE)] == [
        (UNKNOWN_NS, MS_NS)
    ] * 3
    (rank,) = ring.read(Kind.STEP_RANK)
    assert rank["wait_ns"] == 3 * MS_NS
    assert rank["device_ns"] == 7 * MS_NS


def test_each_group_counts_its_own_collectives_from_zero_in_every_step(
    ring: ListRing, window: CollectiveWindow, watch: RankWatch
) -> None:
    other = Collective(CollectiveOp.BROADCAST, 8, 1)
    for step in (0, 2):
        watch.begin(step)
        for said in (ON_HOST, other, ON_HOST):
            call(window, said)()
        watch.end(step, 0, 1)
    rows = [(row["step"], row["group"], row["seq"]) for row in ring.read(Kind.COLLECTIVE)]
    assert rows == [(0, 7, 0), (0, 8, 0), (0, 7, 1), (2, 7, 0), (2, 8, 0), (2, 7, 1)]


def test_the_outermost_call_alone_is_recorded(
    ring: ListRing, window: CollectiveWindow, watch: RankWatch
) -> None:
    inner = call(window, Collective(CollectiveOp.BROADCAST, 9, 1))
    watch.begin(0)
    call(window, ON_HOST, inner)()
    inner()
    watch.end(0, 0, 1)
    assert [row["group"] for row in ring.read(Kind.COLLECTIVE)] == [7, 9]


def test_a_call_that_fails_raises_its_own_error_and_leaves_no_record(
    ring: ListRing, window: CollectiveWindow, watch: RankWatch
) -> None:
    def fail() -> None:
        raise TimeoutError("peer is gone")

    watch.begin(0)
    with pytest.raises(TimeoutError, match="peer is gone"):
        call(window, ON_HOST, fail)()
    assert call(window, ON_HOST, lambda: 5)() == 5
    watch.end(0, 0, 1)
    assert [row["seq"] for row in ring.read(Kind.COLLECTIVE)] == [1]


def test_what_a_call_says_may_be_unreadable(
    ring: ListRing, window: CollectiveWindow, watch: RankWatch
) -> None:
    def read(_args: object, _kwargs: object) -> Collective:
        raise KeyError("tensor")

    watch.begin(0)
    assert window.watch_call(read, lambda: 5, (), {}) == 5
    watch.end(0, 0, 1)
    assert ring.read(Kind.COLLECTIVE) == []


def test_the_wait_of_an_asynchronous_call_is_that_of_its_work(
    device: FakeDevice, ring: ListRing, window: CollectiveWindow, watch: RankWatch
) -> None:
    device.is_there = False
    said = Collective(CollectiveOp.ALL_REDUCE, GROUP, 64, is_async=True)
    works = [object(), object()]
    watch.begin(0)
    call(window, said, lambda: works)()
    assert ring.read(Kind.COLLECTIVE) == []
    for work in works:
        assert window.watch_wait(lambda waited: waited, work, (), {}) is work
    stranger = object()
    assert window.watch_wait(lambda waited: waited, stranger, (), {}) is stranger
    watch.end(0, 0, 1)
    (row,) = ring.read(Kind.COLLECTIVE)
    assert ring.read(Kind.STEP_RANK)[0]["wait_ns"] == row["end_ns"] - row["start_ns"]


def test_a_work_that_nobody_waited_for_leaves_the_wait_unknown(
    device: FakeDevice, ring: ListRing, window: CollectiveWindow, watch: RankWatch
) -> None:
    device.is_there = False
    said = Collective(CollectiveOp.ALL_REDUCE, GROUP, 64, is_async=True)
    watch.begin(0)
    call(window, said, object)()
    watch.end(0, 0, 1)
    assert ring.read(Kind.COLLECTIVE)[0]["start_ns"] == UNKNOWN_NS
    assert ring.read(Kind.STEP_RANK)[0]["wait_ns"] == UNKNOWN_NS
