from otel_llmprism.instrumentation.keeping import StepKeeper, StepTicket
from otel_llmprism.native.ring_records import Kept

RUN = bytes(range(16))
SECOND_NS = 1_000_000_000


def admit(keeper: StepKeeper, steps_per_s: int, seconds: int) -> list[StepTicket]:
    gap_ns = SECOND_NS // steps_per_s
    return [keeper.admit_step(step * gap_ns) for step in range(steps_per_s * seconds)]


def test_step_ids_count_from_zero_without_a_gap() -> None:
    assert [step for step, _, _ in admit(StepKeeper("e", RUN, "sample"), 50, 3)] == list(range(150))


def test_probability_is_one_over_the_steps_of_the_second_before() -> None:
    tickets = admit(StepKeeper("e", RUN, "sample"), 100, 3)
    assert {p for _, _, p in tickets[:100]} == {1.0}
    assert {p for _, _, p in tickets[100:]} == {0.01}


def test_one_step_a_second_is_kept_on_average_whatever_the_rate() -> None:
    for rate in (20, 200):
        keeper = StepKeeper("engine", RUN, "sample")
        kept = sum(kept == Kept.RANDOM for _, kept, _ in admit(keeper, rate, 301)[rate:])
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
    assert {ticket[1:] for ticket in admit(StepKeeper("e", RUN, "all"), 50, 2)} == {(Kept.ALL, 1.0)}
    assert {ticket[1:] for ticket in admit(StepKeeper("e", RUN, "none"), 50, 2)} == {(Kept.NO, 0.0)}
