# The fleet's budget of deep-dives, with time as data.
import pytest

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.control import CONTROL_REQUESTS
from otel_llmprism.service.control_book import ControlBook, ControlConfig, RequestRefusedError, State

S = 1_000_000_000


class Fleet:
    def __init__(self, **limits: float) -> None:
        self.counters = Counters()
        self.book = ControlBook(ControlConfig(**limits), self.counters)  # type: ignore[arg-type]

    def count(self, outcome: str) -> float:
        return self.counters.value(CONTROL_REQUESTS, outcome=outcome)


def test_a_request_is_granted_to_its_engine_until_it_is_settled() -> None:
    fleet = Fleet()
    filed = fleet.book.file_request("e", 20, 0)
    assert fleet.book.take_granted("another", 1) is None
    granted = fleet.book.take_granted("e", 1)
    assert granted is not None
    assert (granted.id, granted.steps, granted.state) == (filed.id, 20, State.GRANTED)
    assert fleet.book.take_granted("e", 2) is granted, "an answer that was lost is given again"
    assert fleet.book.settle(filed.id, 3, is_done=True)
    assert not fleet.book.settle(filed.id, 4, is_done=True)
    assert fleet.book.take_granted("e", 5) is None
    assert {name: fleet.count(name) for name in ("asked", "granted", "done")} == {
        "asked": 1,
        "granted": 1,
        "done": 1,
    }


def test_one_bad_switch_does_not_open_a_thousand() -> None:
    fleet = Fleet(max_running=2)
    for number in range(100):
        fleet.book.file_request(f"e{number}", 5, 0)
    granted = [r for number in range(100) if (r := fleet.book.take_granted(f"e{number}", 1)) is not None]
    assert [request.engine for request in granted] == ["e0", "e1"]
    fleet.book.settle(granted[0].id, 2, is_done=True)
    assert fleet.book.take_granted("e7", 3) is not None
    assert fleet.book.take_granted("e8", 3) is None


def test_an_engine_rests_after_a_deep_dive_and_is_told_how_long() -> None:
    fleet = Fleet(cool_down_s=60.0)
    filed = fleet.book.file_request("e", 5, 0)
    fleet.book.take_granted("e", 0)
    fleet.book.settle(filed.id, 10 * S, is_done=True)
    with pytest.raises(RequestRefusedError) as refused:
        fleet.book.file_request("e", 5, 20 * S)
    assert refused.value.retry_after_s == 50
    assert fleet.count("refused") == 1
    assert fleet.book.file_request("e", 5, 70 * S).state is State.WAITING


def test_a_request_that_no_engine_comes_for_expires_and_may_be_filed_again() -> None:
    fleet = Fleet(expire_s=120.0)
    first = fleet.book.file_request("e", 5, 0)
    assert fleet.book.take_granted("e", 121 * S) is None
    assert first.state is State.EXPIRED
    assert fleet.count("expired") == 1
    assert fleet.book.file_request("e", 5, 122 * S).id != first.id


def test_an_engine_that_dies_in_a_deep_dive_gives_its_place_back() -> None:
    fleet = Fleet(max_running=1, max_run_s=300.0)
    for engine in ("dead", "e"):
        fleet.book.file_request(engine, 5, 0)
    assert fleet.book.take_granted("dead", 0) is not None
    fleet.book.file_request("late", 5, 299 * S)
    assert fleet.book.take_granted("late", 300 * S) is None
    assert fleet.book.take_granted("late", 301 * S) is not None


def test_a_second_wish_for_an_engine_is_the_first_one() -> None:
    fleet = Fleet()
    assert fleet.book.file_request("e", 5, 0).id == fleet.book.file_request("e", 9, 1).id
    assert fleet.count("asked") == 2


@pytest.mark.parametrize(("engine", "steps"), [("", 5), ("e" * 257, 5), ("e", 0), ("e", 201), ("e", -1)])
def test_absurd_requests_are_refused_for_good(engine: str, steps: int) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        Fleet().book.file_request(engine, steps, 0)
    assert refused.value.retry_after_s == 0


def test_what_waits_is_bounded() -> None:
    fleet = Fleet(max_waiting=3)
    for number in range(3):
        fleet.book.file_request(f"e{number}", 5, 0)
    with pytest.raises(RequestRefusedError, match="too many"):
        fleet.book.file_request("e", 5, 0)
    assert fleet.book.file_request("e", 5, 121 * S).state is State.WAITING
