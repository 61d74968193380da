import random
import time
from collections.abc import Iterator

import pytest

from otel_llmprism.instrumentation.guard import (
    BUDGET_NS,
    MAX_FAILURES,
    TELL_EVERY_NS,
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
from otel_llmprism.native.ring_members import CHECK_EVERY
from otel_llmprism.native.ring_records import Finish, Kind, Mode, RequestEvent, derive_request_handle

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
    first.note_call(TELL_EVERY_NS - 1)
    assert ring.hook_ns == 0
    first.note_call(5)
    second.note_call(3 * TELL_EVERY_NS)
    assert ring.hook_ns == first.total_ns + second.total_ns
    first.note_call(1)
    assert ring.hook_ns == first.total_ns + second.total_ns - 1


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
    for call in range(2 * WINDOW_CALLS):
        assert not hook.is_off
        hook.note_call(2 * BUDGET_NS if call % 50 == 0 else 1000)
    assert hook.is_off
    assert ring.list_kinds() == [Kind.HOOK_OFF]


def test_a_slow_window_is_measured_again_in_cpu_time_before_a_hook_goes_off() -> None:
    hook = HookState("step", NullRing())
    for _ in range(WINDOW_CALLS):
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


def test_rank_of_no_step_is_not_recorded() -> None:
    ring = ListRing()
    recorder = RankRecorder(ring, RankPlace(rank=1, tp=1))
    recorder.record_rank(NO_STEP.step_id, 1, 2)
    recorder.record_rank(0, 1, 2)
    assert ring.list_kinds() == [Kind.STEP_RANK]


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
