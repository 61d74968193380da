import json
from pathlib import Path

import pytest

from otel_llmprism.testing.mini_engine.fault_injector import FaultInjector, FaultPlan
from otel_llmprism.testing.mini_engine.fault_schedule import (
    Entry,
    Manner,
    Place,
    ScheduleError,
    read_schedule,
    write_schedule,
)
from otel_llmprism.testing.mini_engine.scheduler import Scheduler
from otel_llmprism.testing.mini_engine.sequence import Sequence
from otel_llmprism.testing.mini_engine.settings import EngineConfig

SLOW = Entry("f1", Place.RANK, 10.0, 20.0, 2.0, rank=1)


def test_schedule_comes_back_in_order_of_time(tmp_path: Path) -> None:
    first = Entry("f0", Place.OPERATOR, 1.0, 2.0, 1.3, manner=Manner.SLEEP)
    write_schedule(tmp_path / "s.jsonl", (SLOW, first))
    assert read_schedule(tmp_path / "s.jsonl") == (first, SLOW)


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        '{"id": "f", "place": "nowhere", "begin_s": 0, "end_s": 1, "intensity": 2}',
        '{"id": "f", "place": "rank", "begin_s": 1, "end_s": 1, "intensity": 2}',
        '{"id": "f", "place": "rank", "begin_s": 0, "end_s": 1, "intensity": 1}',
        '{"id": "f", "place": "rank", "begin_s": 0, "end_s": 1, "intensity": 2, "more": 1}',
    ],
)
def test_wrong_line_is_refused_with_its_place(tmp_path: Path, line: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(line)
    with pytest.raises(ScheduleError, match=r"s\.jsonl:1"):
        read_schedule(path)


def test_fault_of_one_rank_strikes_that_rank_while_it_lasts() -> None:
    plan = FaultPlan((SLOW,), origin_ns=0)
    assert plan.find_entry(Place.RANK, int(15e9), rank=1) is SLOW
    assert plan.find_entry(Place.RANK, int(15e9), rank=0) is None
    assert plan.find_entry(Place.RANK, int(9e9), rank=1) is None
    assert plan.find_entry(Place.RANK, int(20e9), rank=1) is None
    assert plan.find_entry(Place.OPERATOR, int(15e9)) is None


def test_added_time_is_booked_with_its_step_and_fault(tmp_path: Path) -> None:
    plan = FaultPlan((SLOW,), origin_ns=0, log=tmp_path / "injected")
    injector = FaultInjector(plan, rank=1)
    injector.begin_step(int(15e9))
    injector._mark_ns = 0  # everything since the machine came up counts as the operator's own time
    injector._delay = lambda entry, wanted_ns: injector._added.update({entry.id: int(wanted_ns)}) or 0  # type: ignore[method-assign]
    injector.delay_operator()
    injector.end_step(7, int(16e9))
    injector.close()
    (line,) = [json.loads(text) for text in (tmp_path / "injected.1").read_text().splitlines()]
    assert (line["step"], line["fault"], line["rank"]) == (7, "f1", 1)
    assert line["added_ns"] > 0


def test_engine_without_schedule_is_not_slowed(tmp_path: Path) -> None:
    injector = FaultInjector(FaultPlan(log=tmp_path / "injected"))
    injector.begin_step(1)
    injector.delay_schedule()
    injector.delay_operator()
    injector.end_step(0, 2)
    assert list(tmp_path.iterdir()) == []


def test_squeezed_cache_gives_its_blocks_back() -> None:
    scheduler = Scheduler(EngineConfig(kv_blocks=100))
    scheduler.add_sequence(Sequence("a", list(range(16 * 60)), 16 * 60, 8, 0))
    scheduler._reserve(scheduler.waiting[0], 16 * 60)
    scheduler.squeeze_cache(2.0)
    assert scheduler.kv_usage == 1.0
    assert len(scheduler._withheld) == 40  # what was free; the rest as it comes free
    scheduler.squeeze_cache(1.0)
    assert not scheduler.is_squeezed
    assert scheduler.kv_usage == pytest.approx(0.6)
