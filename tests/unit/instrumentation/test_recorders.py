import random
import time
from collections.abc import Iterator
from typing import NoReturn

import numpy as np
import pytest

from otel_llmprism.instrumentation.guard import (
    BUDGET_NS,
    MAX_FAILURES,
    SETTLE_EVERY,
    TIME_EVERY,
    WINDOW_CALLS,
    HookState,
    NullRing,
)
from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.request_records import NO_CONTEXT, RequestRecorder
from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.step_records import NO_STEP, EngineState, StepRecorder
from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_dtypes import RING_DTYPES
from otel_llmprism.native.ring_layout import SLOT_BYTES
from otel_llmprism.native.ring_members import CHECK_EVERY
from otel_llmprism.native.ring_records import (
    CollectiveOp,
    Finish,
    Kind,
    Mode,
    RequestEvent,
    derive_request_handle,
    pack_collective,
    pack_request_event,
    pack_step_phases,
)

STATE = EngineState()


class ListRing:
    """Keeps records; refuses those for which `is_full` is set."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.is_full = False
        self.hook_ns = 0

    def add_hook_time(self, duration_ns: int, /) -> None:
        self.hook_ns += duration_ns

    def put(self, record: bytes, /) -> bool:
        if not self.is_full:
            self.records.append(record)
        return not self.is_full

    def list_kinds(self) -> list[Kind]:
        return [Kind(int.from_bytes(record[:2], "little")) for record in self.records]


class BrokenRing:
    def put(self, _record: bytes, /) -> bool:
        raise ValueError("broken")

    def add_hook_time(self, _duration_ns: int, /) -> None:
        pass


def build_steps(ring: ListRing | BrokenRing | NullRing) -> StepRecorder:
    return StepRecorder(ring, StepKeeper("e", bytes(16), "sample"), Mode.SENTINEL)


def build_requests(ring: ListRing | BrokenRing) -> RequestRecorder:
    return RequestRecorder(ring, build_sampler({}), reads_context=True)


def test_schedule_call_without_tokens_is_no_step() -> None:
    ring = ListRing()
    steps = build_steps(ring)
    assert steps.record_scheduled({}, (), STATE, 1, 2) == NO_STEP
    steps.record_output(NO_STEP, 3)
    assert ring.records == []
    assert steps.record_scheduled({"a": 1}, (), STATE, 1, 2).step_id == 0


def test_after_a_dropped_record_the_whole_running_set_is_told_again() -> None:
    ring = ListRing()
    steps = build_steps(ring)
    tokens = dict.fromkeys(["a", "b", "c"], 1)
    steps.record_scheduled(tokens, (), STATE, 1, 2)
    steps.record_scheduled(tokens, (), STATE, 3, 4)
    quiet = len(ring.records[-1])
    ring.is_full = True
    steps.record_scheduled(tokens, (), STATE, 5, 6)
    ring.is_full = False
    steps.record_scheduled(tokens, (), STATE, 7, 8)
    assert len(ring.records[-1]) > quiet


def test_the_time_of_hooks_is_told_to_the_ring_in_pieces_and_never_twice() -> None:
    ring = ListRing()
    first, second = HookState("steps", ring), HookState("requests", ring)
    for call in range(10 * SETTLE_EVERY):
        first.note_call(1000 + call)
        second.note_call(7)
        untold_ns = first.total_ns + second.total_ns - ring.hook_ns
        assert 0 <= untold_ns < SETTLE_EVERY * TIME_EVERY * 2000
    assert ring.hook_ns == first.total_ns + second.total_ns
    assert second.total_ns == 10 * SETTLE_EVERY * 7 * TIME_EVERY  # one of so many calls is timed
    first.note_call(1)
    assert ring.hook_ns == first.total_ns + second.total_ns - TIME_EVERY


def test_one_call_in_a_few_is_timed_and_each_is_counted() -> None:
    steps = build_steps(ListRing())
    for _ in range(10 * TIME_EVERY):
        steps.record_pause(1, 2, 0)
        steps.record_output(NO_STEP, 3)
    assert steps.hook.calls == 20 * TIME_EVERY
    assert len(steps.hook.list_kept_ns()) == 20


def test_no_error_of_ours_reaches_the_engine() -> None:
    steps, requests = build_steps(BrokenRing()), build_requests(BrokenRing())
    assert steps.record_scheduled({"a": 1}, (), STATE, 1, 2) == NO_STEP
    assert requests.record_arrival("a", 1) == NO_CONTEXT
    requests.record_event("a", RequestEvent.QUEUED, 2)
    RankRecorder(BrokenRing(), RankPlace(0)).record_rank(1, 2, 3)
    assert (steps.hook.failures, requests.hook.failures) == (1, 2)


@pytest.mark.parametrize("wrong", [{"a": -1}, {"a": "many"}, {"a": 1 << 40}, {None: 1}])
def test_nonsense_from_an_engine_is_counted_and_costs_one_step(wrong: dict[object, object]) -> None:
    ring = ListRing()
    steps = build_steps(ring)
    assert steps.record_scheduled(wrong, (), STATE, 1, 2) == NO_STEP  # type: ignore[arg-type]
    assert steps.hook.failures == 1
    assert steps.record_scheduled({"b": 1}, (), STATE, 3, 4).step_id >= 0
    assert ring.records


def test_a_hook_that_keeps_failing_switches_itself_off() -> None:
    steps = build_steps(BrokenRing())
    calls_until_off = [steps.record_scheduled({"a": 1}, (), STATE, 1, 2) for _ in range(MAX_FAILURES)]
    assert calls_until_off == [NO_STEP] * MAX_FAILURES
    assert steps.hook.is_off
    steps.record_scheduled({"a": 1}, (), STATE, 1, 2)
    assert steps.hook.failures == MAX_FAILURES


def test_a_few_failures_leave_a_hook_on() -> None:
    steps = build_steps(BrokenRing())
    for _ in range(MAX_FAILURES - 1):
        steps.record_scheduled({"a": 1}, (), STATE, 1, 2)
    assert not steps.hook.is_off


def test_a_hook_over_its_budget_switches_itself_off_and_says_so() -> None:
    ring = ListRing()
    hook = HookState("step", ring)
    calls = 0
    while not hook.is_off:
        assert calls < 2 * WINDOW_CALLS
        hook.note_call(2 * BUDGET_NS if calls % 50 == 0 else 1000)
        calls += 1
    assert ring.list_kinds() == [Kind.HOOK_OFF]


def test_a_hook_that_is_always_slow_goes_off_before_its_window_ends() -> None:
    hook = HookState("step", NullRing())
    for _ in range(2 * (WINDOW_CALLS // 100 + 1)):
        assert not hook.is_off
        hook.note_call(2 * BUDGET_NS)
    assert hook.is_off


def test_a_slow_window_is_measured_again_in_cpu_time_before_a_hook_goes_off() -> None:
    hook = HookState("step", NullRing())
    for _ in range(WINDOW_CALLS // 100 + 1):
        hook.note_call(2 * BUDGET_NS)  # by the wall clock: others had the cores
    assert hook.clock is time.thread_time_ns
    for _ in range(WINDOW_CALLS):
        hook.note_call(1000)
    assert not hook.is_off
    assert hook.clock is time.perf_counter_ns


def test_a_hook_with_rare_outliers_stays_on() -> None:
    hook = HookState("step", NullRing())
    for call in range(3 * WINDOW_CALLS):
        hook.note_call(2 * BUDGET_NS if call % 200 == 0 else 1000)
    assert not hook.is_off


def test_request_span_is_a_child_of_the_caller_and_keeps_its_decision() -> None:
    requests = build_requests(ListRing())
    trace, span = "ab" * 16, "cd" * 8
    context = requests.record_arrival("r", 1, f"00-{trace}-{span}-00")
    assert (context.trace_id.hex(), context.parent_span_id.hex()) == (trace, span)
    assert not context.is_sampled
    assert context.span_id.hex() != span


def test_request_without_a_caller_is_a_sampled_root() -> None:
    context = build_requests(ListRing()).record_arrival("r", 1, "no context")
    assert context.is_sampled
    assert not any(context.parent_span_id)
    assert any(context.trace_id)


def test_caller_is_ignored_when_the_propagators_say_so() -> None:
    requests = RequestRecorder(ListRing(), build_sampler({}), reads_context=False)
    context = requests.record_arrival("r", 1, f"00-{'ab' * 16}-{'cd' * 8}-01")
    assert context.trace_id.hex() != "ab" * 16


def test_one_request_leaves_its_records_in_order() -> None:
    ring = ListRing()
    requests = build_requests(ring)
    requests.record_arrival("r" * 100, 1)
    requests.record_event("r", RequestEvent.FIRST_TOKEN, 2, step=0)
    requests.record_end("r", 3, Finish.STOP, prompt_tokens=4, output_tokens=5)
    assert ring.list_kinds() == [Kind.REQUEST_ARRIVED, Kind.REQUEST_EVENT, Kind.REQUEST_ENDED]


def test_several_requests_events_go_out_as_one_record_each() -> None:
    one, many = ListRing(), ListRing()
    requests = build_requests(one)
    for name, tokens in (("a", 3), ("b", 0)):
        requests.record_event(name, RequestEvent.SCHEDULED, 9, step=4, tokens=tokens)
    build_requests(many).record_events(RequestEvent.SCHEDULED, 9, {"a": 3, "b": 0}, step=4)
    build_requests(many).record_events(RequestEvent.SCHEDULED, 9, {})
    assert many.records == [b"".join(one.records)]


def test_an_arrival_can_book_its_queueing_with_it() -> None:
    ring = ListRing()
    build_requests(ring).record_arrival("a", 5, queued_ns=7)
    event = pack_request_event(derive_request_handle("a"), 7, RequestEvent.QUEUED)
    assert ring.records[0][-len(event) :] == event


def test_rank_of_no_step_is_not_recorded() -> None:
    ring = ListRing()
    recorder = RankRecorder(ring, RankPlace(rank=1, tp=1))
    recorder.record_rank(NO_STEP.step_id, 1, 2)
    recorder.record_rank(0, 1, 2)
    assert ring.list_kinds() == [Kind.STEP_RANK]


def test_collectives_and_phases_of_a_step_are_recorded_with_the_ranks_number() -> None:
    ring = ListRing()
    recorder = RankRecorder(ring, RankPlace(rank=3))
    recorder.record_collective(7, 99, 0, CollectiveOp.ALL_REDUCE, 4096, 10, 20)
    recorder.record_phases(7, 1207, forward_ns=5, backward_ns=6, micro_batches=4)
    recorder.record_collective(NO_STEP.step_id, 99, 0, CollectiveOp.ALL_REDUCE, 4096, 10, 20)
    recorder.record_phases(NO_STEP.step_id, 1207)
    assert ring.records == [
        pack_collective(7, 3, 99, 0, CollectiveOp.ALL_REDUCE, 4096, 10, 20),
        pack_step_phases(7, 3, 1207, 5, 6, micro_batches=4),
    ]


@pytest.mark.parametrize("is_local", [True, False])
def test_an_arrival_takes_the_context_that_the_front_end_has_fixed(*, is_local: bool) -> None:
    ring = ListRing()
    requests = build_requests(ring)
    fixed = requests.fix_context(f"00-{'ab' * 16}-{'cd' * 8}-01", is_local_parent=is_local)
    assert ring.records == []
    assert (fixed.trace_id.hex(), fixed.parent_span_id.hex()) == ("ab" * 16, "cd" * 8)
    assert fixed.has_remote_parent is not is_local
    assert requests.record_arrival("r", 1, context=fixed) == fixed
    assert fixed.span_id in ring.records[0]


def test_an_arrival_whose_front_end_was_off_gets_a_context_of_its_own() -> None:
    context = build_requests(ListRing()).record_arrival("r", 1, context=NO_CONTEXT)
    assert any(context.trace_id)


def draw_batches(seed: int) -> Iterator[tuple[dict[str, int], set[str], list[str], list[str]]]:
    """Yield tokens, prefill, joined and left of consecutive steps of a made-up engine."""
    drawn = random.Random(seed)
    running: dict[str, int] = {}
    told: set[str] = set()
    for step in range(200):
        left = [name for name in running if drawn.random() < 0.05]
        for name in left:
            del running[name]
        running |= {f"r{step}-{n}": 1 for n in range(drawn.choice((0, 0, 1, 2)))}
        tokens = {name: drawn.choice((1, 1, 1, 3)) for name in running if drawn.random() < 0.9}
        prefill = {name for name in tokens if drawn.random() < 0.1}
        joined = [name for name in tokens if name not in told]
        told |= tokens.keys()
        yield tokens, prefill, joined, left


@pytest.mark.parametrize("seed", range(5))
def test_naming_the_joined_changes_nothing_but_the_time_it_takes(seed: int) -> None:
    named: RunningSet[str] = RunningSet(derive_request_handle)
    found: RunningSet[str] = RunningSet(derive_request_handle)
    for tokens, prefill, joined, left in draw_batches(seed):
        for running in (named, found):
            running.leave(left)
        entries = named.diff(tokens, prefill, joined=joined), found.diff(tokens, prefill)
        one, other = (sorted((handle, word) for handle, _, word in own) for own in entries)
        assert one == other


def test_an_engine_that_names_no_joined_is_found_out() -> None:
    running: RunningSet[str] = RunningSet(derive_request_handle)
    running.diff({"a": 1}, ())
    assert len(running.diff({"a": 1, "b": 1}, (), joined=())) == 1  # more than there can be
    for _ in range(CHECK_EVERY):
        running.diff({"a": 1, "c": 1}, (), joined=())  # as many as there can be, but not the same
    assert "c" in running._places


def read_scheduled(record: bytes) -> tuple[int, int, int]:
    """Return requests, prefill tokens and decode tokens."""
    row = np.frombuffer(record[:SLOT_BYTES], RING_DTYPES[Kind.STEP_SCHEDULED])[0]
    return int(row["requests"]), int(row["prefill_tokens"]), int(row["decode_tokens"])


def record_named(steps: StepRecorder, tokens: dict[str, int], total: int, prompt: int = 0) -> None:
    steps.record_scheduled(tokens, (), STATE, 1, 2, joined=(), total_tokens=total, prefill_tokens=prompt)


def test_a_sum_that_looks_like_one_token_each_is_found_out_by_the_look_at_all() -> None:
    ring = ListRing()
    steps = build_steps(ring)
    speculated = {"a": 3, "b": 1}
    for _ in range(CHECK_EVERY + 1):
        record_named(steps, speculated, total=2)
    assert read_scheduled(ring.records[0]) == read_scheduled(ring.records[-1]) == (2, 0, 4)
    record_named(steps, speculated, total=2)
    assert read_scheduled(ring.records[-1]) == (2, 0, 4)  # not believed again


@pytest.mark.parametrize(("total", "prompt"), [(5, 0), (1, 0), (2, 1), (0, -2)])
def test_sums_that_do_not_add_up_are_counted_instead(total: int, prompt: int) -> None:
    ring = ListRing()
    steps = build_steps(ring)
    for _ in range(3):
        record_named(steps, {"a": 1, "b": 1}, total, prompt)
    assert {read_scheduled(record) for record in ring.records} == {(2, 0, 2)}


def test_a_step_in_which_nothing_changed_is_one_slot_and_looks_at_no_request() -> None:
    ring = ListRing()
    steps = build_steps(ring)
    record_named(steps, {"a": 1, "b": 1}, total=2)
    opaque = UnreadableBatch({"a": 1, "b": 1})
    record_named(steps, opaque, total=2)
    assert steps.hook.failures == 0
    assert len(ring.records[-1]) == SLOT_BYTES


class UnreadableBatch(dict[str, int]):
    """Only its length may be asked: 256 requests cost no more than one."""

    def values(self) -> NoReturn:
        raise AssertionError

    items = keys = __iter__ = values

    def __getitem__(self, key: str) -> NoReturn:
        raise AssertionError(key)
