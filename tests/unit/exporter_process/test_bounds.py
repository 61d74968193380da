# What keeps an engine's export within its bounds: the byte budget, the links of steps and of requests.
import numpy as np

from otel_llmprism.model.members import StepMembers
from otel_llmprism.service.exporter_process.byte_budget import ByteBudget
from otel_llmprism.service.exporter_process.kept_steps import MAX_LINKS, KeptSteps
from otel_llmprism.service.exporter_process.step_links import choose_linked

SECOND_NS = 1_000_000_000


def test_steps_get_what_the_rest_leaves_of_the_budget() -> None:
    budget = ByteBudget(1000, 2, 0)
    budget.draw(1500, 0)
    assert budget.try_draw(500, 0)
    assert not budget.try_draw(1, 0)
    assert budget.try_draw(1000, SECOND_NS)


def test_what_must_leave_makes_a_debt_of_at_most_one_burst() -> None:
    budget = ByteBudget(1000, 2, 0)
    budget.draw(1_000_000, 0)
    assert not budget.try_draw(1, 2 * SECOND_NS)
    assert budget.try_draw(1000, 3 * SECOND_NS)


def test_an_idle_engine_saves_no_more_than_a_burst() -> None:
    budget = ByteBudget(1000, 2, 0)
    assert not budget.try_draw(2001, 3600 * SECOND_NS)
    assert budget.try_draw(2000, 3600 * SECOND_NS)


def test_a_clock_that_stands_still_gives_nothing() -> None:
    budget = ByteBudget(1000, 1, 5 * SECOND_NS)
    assert budget.try_draw(1000, 5 * SECOND_NS)
    assert not budget.try_draw(1, 4 * SECOND_NS)


def test_up_to_sixteen_kept_steps_are_all_linked() -> None:
    kept = KeptSteps()
    for step in range(MAX_LINKS):
        kept.add(step, step % 3)
    assert kept.choose() == list(range(MAX_LINKS))


def test_of_more_the_first_the_slowest_and_the_latest_are_linked() -> None:
    kept = KeptSteps()
    slow = [100, 333, 500, 700, 871]
    for step in range(1000):
        kept.add(step, 10_000 + step if step in slow else 10)
    chosen = kept.choose()
    assert len(chosen) == MAX_LINKS
    assert chosen == sorted(chosen)
    assert {0, 995, 996, 997, 998, 999, *slow} <= set(chosen)


def make_members(count: int, prefill: list[int]) -> StepMembers:
    is_prefill = np.zeros(count, dtype=np.uint8)
    is_prefill[prefill] = 1
    return StepMembers(np.arange(1, count + 1, dtype=np.uint64), np.ones(count, dtype=np.uint32), is_prefill)


def test_all_sampled_members_are_linked_when_they_fit() -> None:
    rows, omitted = choose_linked(make_members(200, []), lambda handle: handle <= 100, ((), ()), seed=1)
    assert (rows, omitted) == (list(range(100)), 0)


def test_prefill_joined_and_left_come_first_and_the_rest_is_drawn_and_counted() -> None:
    members = make_members(300, [290, 291])
    rows, omitted = choose_linked(members, lambda _: True, ({250, 251}, {260}), seed=1, limit=20)
    assert len(rows) == 20
    assert omitted == 280
    assert {290, 291, 249, 250, 259} <= set(rows)  # handles count from 1
    assert rows == choose_linked(members, lambda _: True, ({250, 251}, {260}), seed=1, limit=20)[0]
    assert rows != choose_linked(members, lambda _: True, ({250, 251}, {260}), seed=2, limit=20)[0]


def test_when_even_the_prefills_are_too_many_joined_ones_win() -> None:
    members = make_members(50, list(range(50)))
    rows, omitted = choose_linked(members, lambda _: True, ({7, 9}, ()), seed=3, limit=2)
    assert (rows, omitted) == ([6, 8], 48)
