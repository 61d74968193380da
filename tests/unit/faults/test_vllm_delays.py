import json
from pathlib import Path

import pytest

from otel_llmprism.testing.faults.vllm_delays import LOG_SUFFIX, ORIGIN_SUFFIX, Delays, wrap_call
from otel_llmprism.testing.mini_engine.fault_schedule import Entry, Manner, Place, write_schedule

MS = 1_000_000


@pytest.fixture
def schedule(tmp_path: Path) -> Path:
    path = tmp_path / "schedule.jsonl"
    places = (Place.OPERATOR, Place.SCHEDULER, Place.FRONT_END)
    # From the machine's start on, for longer than it will run.
    write_schedule(
        path, tuple(Entry(str(place), place, 0, 1e9, 2.0, manner=Manner.SLEEP) for place in places)
    )
    return path


def read_added(path: Path) -> list[tuple[str, int]]:
    lines = (line for log in path.parent.glob(f"*{LOG_SUFFIX}.*") for line in log.read_text().splitlines())
    return [(entry["place"], entry["added_ns"]) for entry in map(json.loads, lines)]


def test_nothing_is_slow_before_the_origin_is_told(schedule: Path) -> None:
    Delays(schedule).delay(Place.OPERATOR, MS)
    assert read_added(schedule) == []


def test_operator_takes_as_long_again_and_what_was_added_is_booked(schedule: Path) -> None:
    schedule.with_name(schedule.name + ORIGIN_SUFFIX).write_text("0")
    Delays(schedule).delay(Place.OPERATOR, 3 * MS)
    ((place, added_ns),) = read_added(schedule)
    assert place == "operator"
    assert added_ns >= 3 * MS


def test_scheduler_is_delayed_by_no_more_than_a_long_step(schedule: Path) -> None:
    schedule.with_name(schedule.name + ORIGIN_SUFFIX).write_text("0")
    Delays(schedule).delay(Place.SCHEDULER, MS)
    ((_, added_ns),) = read_added(schedule)
    assert added_ns >= 50 * MS


def test_wrapped_call_gives_what_the_original_gives(schedule: Path) -> None:
    def add(left: int, right: int = 1) -> int:
        return left + right

    call = wrap_call(add, Place.OPERATOR, Delays(schedule))
    assert call(2, right=3) == 5
