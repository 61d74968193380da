from typing import Any

import pytest

from otel_llmprism.instrumentation.guard import BUDGET_NS, WINDOW_CALLS, HookState, NullRing
from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.instrumentation.step_lane import LentSteps
from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_members import CHECK_EVERY


class FakeLane:
    """Books all that is lent when it is taken back."""

    def __init__(self, timed_ns: int = 9_000) -> None:
        self.lent: list[tuple[int, bytes, float, int, int]] = []
        self.last_output_ns = 77
        self._timed_ns = timed_ns
        self._steps = 0

    def lend(self, step: int, kept: bytes, probability: float, end_ns: int, members: int) -> None:
        self.lent.append((step, kept, probability, end_ns, members))
        self._steps = len(kept)

    def take_back(self) -> tuple[int, int, list[int]]:
        steps, self._steps = self._steps, 0
        return steps, 2 * steps, [self._timed_ns] * bool(steps)


class Bench:
    def __init__(self, lane: Any, steps: str = "sample") -> None:
        self.keeper = StepKeeper("engine", bytes(16), steps)
        self.hook = HookState("step", NullRing())
        self.running: RunningSet[str] = RunningSet(hash)
        self.lent = LentSteps(lane, self.keeper, self.hook)
        self.run_step()

    def run_step(self) -> int:
        self.lent.take_back(self.running)
        step = self.keeper.admit_step(1_500_000_000).step_id
        self.running.diff({"a": 1, "b": 1}, (), joined={}, decode_tokens=2)
        self.lent.lend(self.running)
        return step


def test_without_a_lane_nothing_is_lent_and_steps_count_on() -> None:
    bench = Bench(None)
    assert [bench.run_step() for _ in range(3)] == [1, 2, 3]
    assert bench.lent.last_output_ns == 0


def test_steps_are_lent_until_the_next_look_at_all_and_only_those_of_this_second() -> None:
    lane = FakeLane()
    Bench(lane)
    [(step, kept, probability, end_ns, members)] = lane.lent
    assert (step, len(kept), probability, end_ns, members) == (1, CHECK_EVERY - 2, 1.0, 2_000_000_000, 2)


def test_what_was_booked_is_counted_when_it_is_taken_back() -> None:
    lane = FakeLane()
    bench = Bench(lane)
    assert bench.run_step() == CHECK_EVERY - 1
    assert bench.hook.calls == 2 * (CHECK_EVERY - 2)
    assert bench.hook.list_kept_ns() == [9_000]
    assert bench.running.look_ahead() == (2, CHECK_EVERY - 1)


@pytest.mark.parametrize("steps", ["all", "none"])
def test_nothing_is_lent_where_every_step_or_none_is_kept(steps: str) -> None:
    lane = FakeLane()
    Bench(lane, steps)
    assert lane.lent == []


def test_nothing_is_lent_while_steps_are_deep() -> None:
    lane = FakeLane()
    bench = Bench(lane)
    bench.keeper.keep_deep(2)
    lane.lent.clear()
    bench.run_step()
    bench.run_step()
    assert lane.lent[1:] == []
    bench.run_step()
    assert lane.lent


def test_a_hook_that_goes_over_its_budget_lends_no_more() -> None:
    lane = FakeLane(timed_ns=2 * BUDGET_NS)
    bench = Bench(lane)
    for _ in range(WINDOW_CALLS):
        bench.run_step()
    assert bench.hook.is_suspect or bench.hook.is_off
    lent = len(lane.lent)
    before = bench.run_step()
    assert bench.run_step() == before + 1
    assert len(lane.lent) == lent
