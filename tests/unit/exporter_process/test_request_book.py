# Requests told of by front end and core: whose word counts, when a request goes out, and what is counted.
from dataclasses import dataclass, field

import pytest

from otel_llmprism.exporters.request_spans import UNKNOWN_NS, EndedRequest
from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ring_records import Finish, RequestEvent, derive_request_handle
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.exporter_process.request_book import HOLD_NS, RequestBook
from otel_llmprism.service.request_life import MAX_PREEMPTIONS

MS = 1_000_000


@dataclass
class Desk:
    """A book and the records that it is told next."""

    slots: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counters = Counters()
        self.book = RequestBook(self.counters)
        self._assembler = RingAssembler(self.counters)

    def arrive(self, name: str, at_ms: int) -> None:
        ids = (b"T" * 16, b"S" * 8, bytes(8))
        handle = derive_request_handle(name)
        self.slots.append(records.pack_request_arrived(handle, at_ms * MS, *ids, name, sampled=True))

    def tell(self, name: str, event: RequestEvent, at_ms: int, tokens: int = 0) -> None:
        handle = derive_request_handle(name)
        self.slots.append(records.pack_request_event(handle, at_ms * MS, event, tokens=tokens))

    def end(self, name: str, at_ms: int, finish: Finish, *totals: int, error: bool = False) -> None:
        handle = derive_request_handle(name)
        prompt, output, cached, steps, preemptions = totals or (7, 3, 0, 3, 0)
        self.slots.append(
            records.pack_request_ended(
                handle, at_ms * MS, prompt, output, cached, steps, preemptions, finish, error=error
            )
        )

    def hand_in(self) -> None:
        slots, self.slots = b"".join(self.slots), []
        self._assembler.consume(slots)
        while (tables := self._assembler.take(0)) is not None:
            self.book.note_tables(tables)

    def release(self, at_ms: int) -> list[EndedRequest]:
        self.hand_in()
        return [live.life.to_ended(at_ms * MS) for live in self.book.release(at_ms * MS)]

    def count(self, cause: str) -> float:
        return self.counters.value(LOST, stage="requests", cause=cause)


HOLD_MS = HOLD_NS // MS


def run_to_first_token(desk: Desk, name: str = "r") -> None:
    desk.arrive(name, 0)
    desk.tell(name, RequestEvent.QUEUED, 1)
    desk.tell(name, RequestEvent.SCHEDULED, 10, tokens=4)
    desk.tell(name, RequestEvent.FIRST_TOKEN, 20)


@pytest.mark.parametrize("is_core_first", [True, False])
def test_the_front_ends_end_and_reason_count_and_the_cores_totals(is_core_first: bool) -> None:
    desk = Desk()
    run_to_first_token(desk)
    if not is_core_first:
        desk.tell("r", RequestEvent.RESPONDED, 105, tokens=Finish.STOP)
        desk.hand_in()
    desk.end("r", 100, Finish.ABORT, 7, 3, 4, 5, 1)
    desk.tell("r", RequestEvent.RESPONDED, 105, tokens=Finish.STOP)
    (ended,) = desk.release(105 + HOLD_MS)
    assert (ended.ended_ns, ended.finish, ended.is_error) == (105 * MS, Finish.STOP, False)
    totals = (ended.prompt_tokens, ended.output_tokens, ended.cached_tokens, ended.steps, ended.preemptions)
    assert totals == (7, 3, 4, 5, 1)
    assert desk.release(10 * HOLD_MS) == []


def test_a_request_waits_a_hold_after_the_later_of_both_ends() -> None:
    desk = Desk()
    run_to_first_token(desk)
    desk.tell("r", RequestEvent.RESPONDED, 100, tokens=Finish.ABORT)
    desk.end("r", 900, Finish.ABORT)
    assert desk.release(899 + HOLD_MS) == []
    (ended,) = desk.release(900 + HOLD_MS)
    assert ended.ended_ns == 100 * MS


def test_the_cores_end_counts_where_no_front_end_tells() -> None:
    desk = Desk()
    run_to_first_token(desk)
    desk.end("r", 100, Finish.LENGTH)
    (ended,) = desk.release(100 + HOLD_MS)
    assert (ended.ended_ns, ended.finish) == (100 * MS, Finish.LENGTH)


def test_a_front_end_that_does_not_know_the_reason_leaves_it_to_the_core() -> None:
    desk = Desk()
    run_to_first_token(desk)
    desk.tell("r", RequestEvent.RESPONDED, 105)
    desk.end("r", 100, Finish.ERROR, error=True)
    (ended,) = desk.release(105 + HOLD_MS)
    assert (ended.ended_ns, ended.finish, ended.is_error) == (105 * MS, Finish.ERROR, True)


def test_a_reason_of_a_later_release_is_no_reason_rather_than_a_wrong_one() -> None:
    desk = Desk()
    run_to_first_token(desk)
    desk.tell("r", RequestEvent.RESPONDED, 105, tokens=200)
    (ended,) = desk.release(105 + 10 * HOLD_MS)
    assert (ended.finish, ended.is_error) == (Finish.UNKNOWN, False)


def test_a_request_that_the_core_still_has_waits_longer_for_its_totals() -> None:
    desk = Desk()
    run_to_first_token(desk)
    desk.tell("r", RequestEvent.RESPONDED, 100, tokens=Finish.ABORT)
    assert desk.release(101 + HOLD_MS) == []
    desk.end("r", 5000, Finish.ABORT, 7, 3, 4, 5, 1)
    (ended,) = desk.release(5000 + HOLD_MS)
    assert (ended.output_tokens, ended.ended_ns) == (3, 100 * MS)


def test_a_request_that_never_reached_the_core_waits_no_longer_than_others() -> None:
    desk = Desk()
    desk.arrive("r", 0)
    desk.tell("r", RequestEvent.RESPONDED, 5, tokens=Finish.ERROR)
    (ended,) = desk.release(5 + HOLD_MS)
    assert (ended.is_error, ended.ended_ns, ended.scheduled_ns) == (True, 5 * MS, UNKNOWN_NS)


def test_a_core_that_never_tells_an_end_costs_its_totals_only() -> None:
    desk = Desk()
    run_to_first_token(desk)
    desk.tell("r", RequestEvent.RESPONDED, 100, tokens=Finish.ABORT)
    desk.hand_in()
    live = desk.book.find(derive_request_handle("r"))
    assert live is not None
    live.life.steps, live.life.prefill_tokens, live.life.decode_tokens = 5, 6, 4
    (ended,) = desk.release(100 + 10 * HOLD_MS)
    totals = (ended.prompt_tokens, ended.output_tokens, ended.cached_tokens, ended.steps)
    assert totals == (10, 5, 4, 5)  # 4 cached + 6 computed; the last prefill step gave the first of 5
    assert not ended.is_error


def test_when_the_engine_is_gone_what_ended_nowhere_is_an_error_and_the_rest_is_what_it_was() -> None:
    desk = Desk()
    for name in ("open", "told", "done"):
        run_to_first_token(desk, name)
    desk.tell("told", RequestEvent.RESPONDED, 100, tokens=Finish.STOP)
    desk.end("done", 100, Finish.LENGTH)
    desk.hand_in()
    ended = {live.life.request_id: live.life.to_ended(150 * MS) for live in desk.book.release_all(150 * MS)}
    assert {name: (one.is_error, one.ended_ns // MS) for name, one in ended.items()} == {
        "open": (True, 150),
        "told": (False, 100),
        "done": (False, 100),
    }
    assert list(desk.book.release_all(200 * MS)) == []


def test_recomputed_tokens_are_what_was_lost_less_what_a_cache_still_had() -> None:
    desk = Desk()
    run_to_first_token(desk)
    for at_ms, lost, cached in ((30, 100, 16), (50, 60, 0)):
        desk.tell("r", RequestEvent.PREEMPTED, at_ms, tokens=lost)
        desk.tell("r", RequestEvent.RESUMED, at_ms + 10, tokens=cached)
    desk.tell("r", RequestEvent.PREEMPTED, 70, tokens=500)  # it never came back: nothing computed again
    desk.end("r", 100, Finish.ABORT, 7, 3, 0, 5, 3)
    (ended,) = desk.release(100 + HOLD_MS)
    assert ended.recomputed_tokens == 84 + 60
    assert [(one.lost_tokens, one.resumed_ns // MS, one.cached_tokens) for one in ended.preempted[:2]] == [
        (100, 40, 16),
        (60, 60, 0),
    ]
    assert ended.preempted[2].resumed_ns == UNKNOWN_NS


def test_preemptions_beyond_the_limit_are_counted_and_not_mixed_up() -> None:
    desk = Desk()
    run_to_first_token(desk)
    for number in range(MAX_PREEMPTIONS + 3):
        desk.tell("r", RequestEvent.PREEMPTED, 30 + 2 * number, tokens=10)
        desk.tell("r", RequestEvent.RESUMED, 31 + 2 * number, tokens=number)
    desk.end("r", 100, Finish.STOP)
    (ended,) = desk.release(100 + HOLD_MS)
    assert len(ended.preempted) == MAX_PREEMPTIONS
    assert ended.preempted[-1].cached_tokens == MAX_PREEMPTIONS - 1
    assert ended.preemptions == MAX_PREEMPTIONS + 3  # the core's end told none: by the events


def test_what_another_process_tells_before_the_arrival_is_not_lost() -> None:
    desk = Desk()
    desk.tell("r", RequestEvent.FIRST_TOKEN, 20)
    desk.tell("r", RequestEvent.RESPONDED, 30, tokens=Finish.STOP)
    desk.end("r", 29, Finish.STOP)
    assert desk.release(31) == []
    desk.arrive("r", 0)
    (ended,) = desk.release(30 + HOLD_MS)
    assert (ended.first_token_ns, ended.ended_ns, ended.output_tokens) == (20 * MS, 30 * MS, 3)
    assert desk.count("arrival_missing") == 0


def test_notes_whose_arrival_never_comes_are_counted_and_forgotten() -> None:
    desk = Desk()
    desk.tell("r", RequestEvent.FIRST_TOKEN, 20)
    desk.tell("r", RequestEvent.RESPONDED, 30, tokens=Finish.STOP)
    assert desk.release(31) == []
    assert desk.count("arrival_missing") == 0
    assert desk.release(30 + 10 * HOLD_MS) == []
    assert desk.count("arrival_missing") == 2


def test_an_id_that_comes_again_after_its_end_is_a_request_of_its_own() -> None:
    desk = Desk()
    run_to_first_token(desk)
    desk.end("r", 30, Finish.STOP, 7, 1, 0, 1, 0)
    desk.arrive("r", 40)
    desk.tell("r", RequestEvent.FIRST_TOKEN, 55)
    desk.end("r", 60, Finish.LENGTH, 7, 2, 0, 2, 0)
    ended = desk.release(60 + HOLD_MS)
    told = [(one.arrival_ns // MS, one.first_token_ns // MS, one.output_tokens) for one in ended]
    assert told == [(0, 20, 1), (40, 55, 2)]


def test_an_arrival_told_twice_counts_once() -> None:
    desk = Desk()
    desk.arrive("r", 0)
    desk.arrive("r", 1)
    desk.end("r", 30, Finish.STOP)
    (ended,) = desk.release(30 + HOLD_MS)
    assert ended.arrival_ns == 0
    assert desk.count("duplicate_arrival") == 1
