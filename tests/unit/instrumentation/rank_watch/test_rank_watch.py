import pytest

from otel_llmprism.instrumentation.rank_watch import IDLE_NS, MAX_HELD, RankWatch, read_every
from otel_llmprism.native.ring_records import UNKNOWN_NS, Kind
from otel_llmprism.testing.fake_device import FakeDevice
from otel_llmprism.testing.list_ring import ListRing

MS_NS = 1_000_000


def test_without_a_device_a_rank_is_written_at_once(
    device: FakeDevice, ring: ListRing, watch: RankWatch
) -> None:
    device.is_there = False
    watch.begin(1)
    watch.end(1, 10, 30)
    (rank,) = ring.read(Kind.STEP_RANK)
    assert (rank["step"], rank["rank"], rank["start_ns"], rank["end_ns"]) == (1, 3, 10, 30)
    assert rank["device_ns"] == rank["wait_ns"] == UNKNOWN_NS


def test_a_rank_waits_for_its_device_time_and_is_written_once(
    device: FakeDevice, ring: ListRing, watch: RankWatch
) -> None:
    watch.begin(1)
    watch.end(1, 10, 30)
    assert ring.read(Kind.STEP_RANK) == []
    device.done = 2
    watch.begin(3)
    watch.end(3, 40, 50)
    watch.flush()
    assert [(rank["step"], rank["device_ns"]) for rank in ring.read(Kind.STEP_RANK)] == [
        (1, MS_NS),
        (3, UNKNOWN_NS),
    ]


def test_the_stretches_of_a_step_on_another_stream_add_up(
    device: FakeDevice, ring: ListRing, watch: RankWatch
) -> None:
    watch.begin_device()
    watch.end_device()
    watch.begin(1, is_on_stream=False)
    for _ in range(3):
        watch.begin_device()
        watch.end_device()
    watch.end(1, 10, 30)
    device.done = device.recorded - 1
    watch.begin(3)
    assert ring.read(Kind.STEP_RANK) == []
    watch.end(3, 40, 50)
    device.done = device.recorded
    watch.flush()
    assert [(rank["step"], rank["device_ns"]) for rank in ring.read(Kind.STEP_RANK)] == [
        (1, 3 * MS_NS),
        (3, MS_NS),
    ]


def test_only_a_few_ranks_are_held(ring: ListRing, watch: RankWatch) -> None:
    for step in range(MAX_HELD + 3):
        watch.begin(step)
        watch.end(step, step, step)
    assert [rank["step"] for rank in ring.read(Kind.STEP_RANK)] == [0, 1, 2]


def test_an_idle_engine_keeps_no_rank_back(ring: ListRing, watch: RankWatch) -> None:
    watch.begin(1)
    watch.end(1, 10, 30)
    watch.write_idle(0)
    assert ring.read(Kind.STEP_RANK) == []
    watch.write_idle(1 << 62)
    assert [rank["device_ns"] for rank in ring.read(Kind.STEP_RANK)] == [UNKNOWN_NS]
    assert IDLE_NS < 1_000_000_000, "a step waits a second for its ranks"


def test_a_step_without_an_id_records_nothing(ring: ListRing, watch: RankWatch) -> None:
    watch.begin(-1)
    watch.end(-1, 0, 1)
    watch.flush()
    assert ring.records == []


@pytest.mark.parametrize(
    ("text", "every"), [("", 50), ("10", 10), ("0", 0), ("-3", 50), ("often", 50), ("9" * 40, 50)]
)
def test_the_share_of_steps_is_read_from_the_environment(text: str, every: int) -> None:
    assert read_every({"OTEL_LLMPRISM_COLLECTIVES_EVERY": text}) == every
