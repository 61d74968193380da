from collections.abc import Sequence

from otel_llmprism.native.ring_members import RunningSet
from otel_llmprism.native.ring_records import Member

Told = tuple[Member, int, int, int, bool]


def tell(entries: Sequence[tuple[int, int, int]]) -> list[Told]:
    return [
        (Member(word >> 29), slot, handle, word & 0xFFFFFFF, bool(word >> 28 & 1))
        for handle, slot, word in entries
    ]


def make_set() -> RunningSet[str]:
    running: RunningSet[str] = RunningSet(ord)
    running.diff({}, ())
    return running


def test_first_step_resets_and_joins_everyone() -> None:
    running: RunningSet[str] = RunningSet(ord)
    assert tell(running.diff({"a": 5}, {"a"})) == [
        (Member.RESET, 0, 0, 0, False),
        (Member.JOINED, 0, 97, 5, True),
    ]


def test_plain_decode_step_lists_nobody() -> None:
    running = make_set()
    running.diff({"a": 5, "b": 1}, {"a"})
    assert running.diff({"a": 1, "b": 1}, ()) == []


def test_prefill_of_a_single_token_is_listed_as_prefill() -> None:
    running = make_set()
    running.diff({"a": 5}, {"a"})
    assert tell(running.diff({"a": 1}, {"a"})) == [(Member.TOKENS, 0, 97, 1, True)]


def test_running_request_without_tokens_is_listed_with_zero() -> None:
    running = make_set()
    running.diff({"a": 1, "b": 1}, ())
    assert tell(running.diff({"b": 3}, ())) == [
        (Member.TOKENS, 0, 97, 0, False),
        (Member.TOKENS, 1, 98, 3, False),
    ]


def test_slot_of_a_request_that_left_is_free_in_the_same_step() -> None:
    running = make_set()
    running.diff({"a": 1, "b": 1}, ())
    running.leave(["a", "unknown"])
    assert tell(running.diff({"b": 1, "c": 9}, {"c"})) == [
        (Member.LEFT, 0, 97, 0, False),
        (Member.JOINED, 0, 99, 9, True),
    ]


def test_lanes_predict_only_their_own_requests() -> None:
    running = make_set()
    running.diff({"a": 1}, (), lane=0)
    assert tell(running.diff({"b": 1}, (), lane=1)) == [(Member.JOINED, 1 << 16, 98, 1, False)]
    assert running.diff({"a": 1}, (), lane=0) == []
    assert running.diff({"b": 1}, (), lane=1) == []


def test_request_that_changes_lanes_leaves_and_joins() -> None:
    running = make_set()
    running.diff({"a": 1}, (), lane=0)
    running.diff({"b": 1}, (), lane=1)
    assert tell(running.diff({"a": 1, "b": 1}, (), lane=1)) == [
        (Member.LEFT, 0, 97, 0, False),
        (Member.JOINED, 1 << 16 | 1, 97, 1, False),
    ]


def test_after_a_lost_record_the_whole_set_is_told_again() -> None:
    running = make_set()
    running.diff({"a": 1, "b": 1}, (), lane=0)
    running.diff({"c": 4}, (), lane=1)
    running.leave(["a"])
    running.repeat_all()
    assert tell(running.diff({"b": 1, "d": 2}, {"d"}, lane=0)) == [
        (Member.RESET, 0, 0, 0, False),
        (Member.JOINED, 1, 98, 1, False),
        (Member.JOINED, 1 << 16, 99, 0, False),
        (Member.JOINED, 0, 100, 2, True),
    ]
