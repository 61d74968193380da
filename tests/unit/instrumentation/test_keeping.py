from otel_llmprism.instrumentation.keeping import StepKeeper, StepTicket
from otel_llmprism.model.ids import derive_step_trace_id, is_kept_at_random
from otel_llmprism.native.ring_records import Kept, Mode

RUN = bytes(range(16))
SECOND_NS = 1_000_000_000


def admit(keeper: StepKeeper, steps_per_s: int, seconds: int) -> list[StepTicket]:
    gap_ns = SECOND_NS // steps_per_s
    return [keeper.admit_step(step * gap_ns) for step in range(steps_per_s * seconds)]


def test_step_ids_count_from_zero_without_a_gap() -> None:
    assert [ticket.step_id for ticket in admit(StepKeeper("e", RUN, "sample"), 50, 3)] == list(range(150))


def test_probability_is_one_over_the_steps_of_the_second_before() -> None:
    tickets = admit(StepKeeper("e", RUN, "sample"), 100, 3)
    assert {ticket.probability for ticket in tickets[:100]} == {1.0}
    assert {ticket.probability for ticket in tickets[100:]} == {0.01}


def test_one_step_a_second_is_kept_on_average_whatever_the_rate() -> None:
    for rate in (20, 200):
        keeper = StepKeeper("engine", RUN, "sample")
        kept = sum(ticket.kept == Kept.RANDOM for ticket in admit(keeper, rate, 301)[rate:])
        assert 240 < kept < 360  # 300 seconds; a binomial's standard deviation is 17


def test_an_idle_second_makes_the_next_step_certain() -> None:
    keeper = StepKeeper("e", RUN, "sample")
    admit(keeper, 100, 2)
    assert keeper.admit_step(10 * SECOND_NS).probability == 1.0


def test_decision_follows_the_step_and_not_the_process() -> None:
    one, other = (admit(StepKeeper("e", RUN, "sample"), 100, 20) for _ in range(2))
    assert one == other
    assert one != admit(StepKeeper("e", bytes(16), "sample"), 100, 20)


def test_all_keeps_every_step_and_none_keeps_no_step() -> None:
    assert {ticket[1:3] for ticket in admit(StepKeeper("e", RUN, "all"), 50, 2)} == {(Kept.ALL, 1.0)}
    assert {ticket[1:3] for ticket in admit(StepKeeper("e", RUN, "none"), 50, 2)} == {(Kept.NO, 0.0)}


def test_exactly_the_next_steps_asked_for_are_deep() -> None:
    keeper = StepKeeper("e", RUN, "sample")
    admit(keeper, 100, 2)
    keeper.keep_deep(3)
    assert keeper.deep_left == 3
    tickets = [keeper.admit_step(2 * SECOND_NS + step) for step in range(5)]
    assert [ticket.mode for ticket in tickets] == [Mode.DEEP] * 3 + [Mode.SENTINEL] * 2
    assert {ticket[1:3] for ticket in tickets[:3]} == {(Kept.DEEP, 1.0)}
    assert [ticket.step_id for ticket in tickets] == list(range(200, 205))
    assert keeper.deep_left == 0


def test_two_wishes_at_once_are_served_by_the_same_steps() -> None:
    keeper = StepKeeper("e", RUN, "sample")
    keeper.keep_deep(2)
    keeper.keep_deep(4)
    assert [keeper.admit_step(step).mode for step in range(5)] == [Mode.DEEP] * 4 + [Mode.SENTINEL]


def test_a_deep_step_has_no_bounds_under_all_and_no_span_under_none() -> None:
    for steps, kept in (("all", Kept.ALL), ("none", Kept.NO)):
        keeper = StepKeeper("e", RUN, steps)
        keeper.keep_deep(1)
        ticket = keeper.admit_step(0)
        assert (ticket.kept, ticket.mode) == (kept, Mode.DEEP)


def test_in_deep_mode_every_step_is_deep() -> None:
    keeper = StepKeeper("e", RUN, "sample")
    keeper.mode = Mode.DEEP
    assert {ticket.kept for ticket in admit(keeper, 10, 2)} == {Kept.DEEP}


def test_steps_hashed_ahead_are_decided_as_the_derived_ids_say() -> None:
    keeper = StepKeeper("engine", RUN, "sample")
    for ticket in admit(keeper, 30, 10):
        trace_id = derive_step_trace_id("engine", RUN, ticket.step_id)
        assert (ticket.kept == Kept.RANDOM) == is_kept_at_random(trace_id, ticket.probability)
        if ticket.step_id % 7 == 0:
            keeper.keep_deep(1)  # a deep step needs no drawn id, but has its number
            keeper.admit_step(ticket.step_id * SECOND_NS // 30)
