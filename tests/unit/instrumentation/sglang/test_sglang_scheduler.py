import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from otel_llmprism.instrumentation import process_run
from otel_llmprism.instrumentation.engine_run import EngineRun
from otel_llmprism.instrumentation.frameworks import sglang
from otel_llmprism.instrumentation.frameworks.sglang import scheduler as scheduler_hooks
from otel_llmprism.instrumentation.switches import read_switches
from otel_llmprism.model.member_sums import sum_request_tokens
from otel_llmprism.native.ring_records import Finish, Kind, RequestEvent, StepKind, derive_request_handle
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig
from otel_llmprism.testing import sglang_stand_in as stand_in
from otel_llmprism.testing.list_ring import ListRing


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Iterator[ListRing]:
    """A run of this process that writes to a list, and SGLang's modules hooked."""
    ring = ListRing()
    environment: dict[str, str] = {}
    run = EngineRun(None, read_switches({"OTEL_LLMPRISM_STEPS": "all"}), cast("Any", ring), environment)
    monkeypatch.setattr(process_run, "_run", run)
    for name, members in (
        ("sglang.srt.managers.scheduler", {"Scheduler": stand_in.Scheduler}),
        ("sglang.srt.managers.tp_worker", {"TpModelWorker": stand_in.TpModelWorker}),
    ):
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    sglang.install()
    yield ring
    sglang.remove()


LOOPS = ["normal", "overlapped"]
CLASSES = [stand_in.Scheduler, stand_in.EarlierScheduler]


def submit(scheduler: Any, rid: str, prompt: int, output: int, cached: int = 0) -> None:
    scheduler.handle_generate_request(
        SimpleNamespace(rid=rid, input_ids=[1] * prompt, max_new_tokens=output, cached=cached)
    )


def run_loop(scheduler: Any, loop: str) -> None:
    getattr(stand_in, f"run_{loop}")(scheduler)


def sum_booked_tokens(ring: ListRing) -> dict[int, tuple[int, int]]:
    """Return each request's steps and tokens as the ledger adds them up."""
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=1))
    assembler.consume(b"".join(ring.records))
    tables = assembler.take(1 << 62)
    assert tables is not None
    sums = sum_request_tokens(tables.steps.lane, tables.members, tables.running)
    tokens = (sums.prefill_tokens + sums.decode_tokens).tolist()
    return dict(zip(sums.handle.tolist(), zip(sums.steps.tolist(), tokens, strict=True), strict=True))


def read_ends(ring: ListRing) -> dict[int, Any]:
    return {int(row["handle"]): row for row in ring.read(Kind.REQUEST_ENDED)}


@pytest.mark.parametrize("scheduler_class", CLASSES)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("is_mixed", [False, True])
def test_every_token_that_was_scheduled_is_booked(
    ring: ListRing, scheduler_class: Any, loop: str, is_mixed: bool
) -> None:
    scheduler = scheduler_class(room=64, chunk=16, is_mixed=is_mixed)
    for index in range(9):
        submit(scheduler, f"r{index}", prompt=5 + 7 * index % 30, output=1 + index, cached=index % 4)
    run_loop(scheduler, loop)
    steps = ring.read(Kind.STEP_SCHEDULED)
    assert len(steps) == scheduler.forward_ct
    booked = sum(int(row["prefill_tokens"]) + int(row["decode_tokens"]) for row in steps)
    assert booked == sum(map(sum, scheduler.given.values()))
    given = {derive_request_handle(rid): (len(each), sum(each)) for rid, each in scheduler.given.items()}
    assert sum_booked_tokens(ring) == given
    assert [int(row["step"]) for row in steps] == [*range(len(steps))]
    outputs = ring.read(Kind.STEP_OUTPUT)
    assert [int(row["step"]) for row in outputs] == [*range(len(steps))]
    ends = read_ends(ring)
    for index in range(9):
        end = ends[derive_request_handle(f"r{index}")]
        assert int(end["prompt_tokens"]) == 5 + 7 * index % 30
        assert int(end["output_tokens"]) == 1 + index
        assert Finish(end["finish"]) is Finish.LENGTH
    assert any(int(row["preemptions"]) for row in ends.values()), "the case must hold a retraction"


@pytest.mark.parametrize("loop", LOOPS)
def test_a_request_without_pressure_costs_its_prompt_and_its_output(ring: ListRing, loop: str) -> None:
    scheduler = stand_in.Scheduler()
    submit(scheduler, "one", prompt=10, output=4, cached=3)
    run_loop(scheduler, loop)
    steps = ring.read(Kind.STEP_SCHEDULED)
    assert sum(int(row["prefill_tokens"]) for row in steps) == 7
    # With overlap one step more is launched before the end is known.
    assert sum(int(row["decode_tokens"]) for row in steps) == {"normal": 3, "overlapped": 4}[loop]
    (end,) = read_ends(ring).values()
    assert int(end["cached_tokens"]) == 3


def test_steps_are_prefill_decode_or_mixed(ring: ListRing) -> None:
    scheduler = stand_in.Scheduler(chunk=8, is_mixed=True)
    submit(scheduler, "a", prompt=4, output=9)
    stand_in.plan_batch(scheduler)
    scheduler.waiting_queue, scheduler.running_batch.reqs = [], []
    submit(scheduler, "b", prompt=4, output=3)
    submit(scheduler, "c", prompt=14, output=2)
    stand_in.run_normal(scheduler)
    kinds = Counter(StepKind(row["kind"]) for row in ring.read(Kind.STEP_SCHEDULED))
    assert kinds[StepKind.PREFILL] >= 1
    assert kinds[StepKind.MIXED] >= 1
    assert kinds[StepKind.DECODE] >= 1


@pytest.mark.parametrize("loop", LOOPS)
def test_a_retracted_request_is_preempted_and_comes_back(ring: ListRing, loop: str) -> None:
    scheduler = stand_in.Scheduler(room=30)
    submit(scheduler, "a", prompt=10, output=12)
    submit(scheduler, "b", prompt=10, output=12)
    run_loop(scheduler, loop)
    kinds = [event for event, _, _ in ring.list_events()]
    assert kinds.count(RequestEvent.PREEMPTED) == kinds.count(RequestEvent.RESUMED) >= 1
    preempted = next(row for row in ring.list_events() if row[0] is RequestEvent.PREEMPTED)
    resumed = next(row for row in ring.list_events() if row[0] is RequestEvent.RESUMED)
    assert preempted[1] <= resumed[1]
    assert preempted[2] >= 10
    booked = sum(int(row["preemptions"]) for row in read_ends(ring).values())
    assert booked == kinds.count(RequestEvent.PREEMPTED)
    assert sum(int(row["preemptions"]) for row in ring.read(Kind.STEP_SCHEDULED)) == booked


def test_a_request_goes_from_queue_to_first_token_to_end(ring: ListRing) -> None:
    scheduler = stand_in.Scheduler()
    submit(scheduler, "a", prompt=6, output=2, cached=4)
    stand_in.run_normal(scheduler)
    assert [event for event, _, _ in ring.list_events()] == [
        RequestEvent.QUEUED,
        RequestEvent.SCHEDULED,
        RequestEvent.FIRST_TOKEN,
    ]
    assert ring.list_events()[1][1:] == (0, 4)
    assert len(ring.read(Kind.REQUEST_ARRIVED)) == 1


def test_an_abort_ends_a_request_in_the_queue_and_one_that_runs(ring: ListRing) -> None:
    scheduler = stand_in.Scheduler()
    submit(scheduler, "runs", prompt=4, output=50)
    plan = stand_in.plan_batch(scheduler)
    scheduler.process_batch_result(plan, scheduler.run_batch(plan))
    submit(scheduler, "waits", prompt=4, output=5)
    for rid in ("waits", "runs"):
        scheduler.abort_request(SimpleNamespace(rid=rid))
    waits = read_ends(ring)
    assert [*waits] == [derive_request_handle("waits")]
    stand_in.run_normal(scheduler)
    assert {Finish(row["finish"]) for row in read_ends(ring).values()} == {Finish.ABORT}
    assert len(read_ends(ring)) == 2


def test_the_engines_own_probe_is_work_and_no_request(ring: ListRing) -> None:
    scheduler = stand_in.Scheduler()
    submit(scheduler, "HEALTH_CHECK_17", prompt=4, output=2)
    stand_in.run_normal(scheduler)
    assert len(ring.read(Kind.STEP_SCHEDULED)) == 2
    assert ring.read(Kind.REQUEST_ARRIVED) == ring.list_events() == ring.read(Kind.REQUEST_ENDED) == []


def test_a_full_queue_turns_a_request_away(ring: ListRing) -> None:
    scheduler = stand_in.Scheduler()
    scheduler.max_queued_requests = 1
    submit(scheduler, "a", prompt=4, output=1)
    submit(scheduler, "b", prompt=4, output=1)
    assert scheduler.turned_away == ["b"]
    stand_in.run_normal(scheduler)
    ends = read_ends(ring)
    assert Finish(ends[derive_request_handle("a")]["finish"]) is Finish.LENGTH
    assert len(ends) == 2


class LongQueue(list[Any]):
    """Counts how often somebody walks through it."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        LongQueue.walks += 1
        return super().__iter__()


def test_a_queue_with_room_is_walked_for_no_request(ring: ListRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LongQueue, "walks", 0)
    scheduler = stand_in.Scheduler()
    scheduler.max_queued_requests = 100
    scheduler.waiting_queue = LongQueue()
    for at in range(50):
        submit(scheduler, f"r{at}", prompt=4, output=1)
    assert len(ring.list_events()) == 50
    assert LongQueue.walks == 0


def test_an_idle_batch_is_no_step_and_shifts_no_number(ring: ListRing) -> None:
    scheduler = stand_in.Scheduler()
    idle = stand_in.NumberedBatch([], stand_in.ForwardMode.IDLE)
    scheduler.process_batch_result(idle, scheduler.run_batch(idle))
    submit(scheduler, "a", prompt=4, output=1)
    stand_in.run_normal(scheduler)
    assert [int(row["step"]) for row in ring.read(Kind.STEP_SCHEDULED)] == [1]
    assert [int(row["step"]) for row in ring.read(Kind.STEP_RANK)] == [1]


@pytest.mark.parametrize("loop", LOOPS)
def test_other_ranks_book_their_own_part_of_the_same_steps_alone(ring: ListRing, loop: str) -> None:
    for tp_rank in (0, 1):
        scheduler = stand_in.Scheduler(tp_rank=tp_rank)
        submit(scheduler, "a", prompt=4, output=3)
        run_loop(scheduler, loop)
    steps = {int(row["step"]) for row in ring.read(Kind.STEP_SCHEDULED)}
    ranks = [(int(row["rank"]), int(row["step"])) for row in ring.read(Kind.STEP_RANK)]
    assert sorted(ranks) == [(rank, step) for rank in (0, 1) for step in sorted(steps)]
    assert len(read_ends(ring)) == 1


def test_a_fault_of_the_engine_is_its_own(ring: ListRing, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = stand_in.Scheduler()
    monkeypatch.setattr(scheduler, "tp_worker", None)
    submit(scheduler, "a", prompt=4, output=3)
    plan = stand_in.plan_batch(scheduler)
    with pytest.raises(AttributeError, match="forward_batch_generation"):
        scheduler.run_batch(plan)
    assert len(ring.read(Kind.STEP_SCHEDULED)) == 1


def test_a_scheduler_of_another_shape_runs_on(ring: ListRing) -> None:
    scheduler = stand_in.Scheduler()
    del scheduler.server_args
    submit(scheduler, "a", prompt=4, output=3)
    stand_in.run_normal(scheduler)
    assert ring.records == []
    assert sum(scheduler.given["a"]) == 4 + 2


def test_without_a_run_nothing_is_recorded(ring: ListRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_run, "_run", None)
    monkeypatch.setenv("OTEL_LLMPRISM_DISABLED", "true")
    scheduler = stand_in.Scheduler()
    submit(scheduler, "a", prompt=4, output=3)
    stand_in.run_overlapped(scheduler)
    assert ring.records == []
    assert sum(scheduler.given["a"]) == 4 + 3


def test_a_process_that_is_asleep_asks_for_its_run_once_and_records_when_woken(
    ring: ListRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = process_run.current_run(), []
    monkeypatch.setattr(process_run, "_run", None)
    monkeypatch.setattr(scheduler_hooks, "enter_scheduler", lambda *given: asked.append(given))
    scheduler = stand_in.Scheduler()
    submit(scheduler, "a", prompt=4, output=3)
    stand_in.run_normal(scheduler)
    assert len(asked) == 1
    monkeypatch.setattr(process_run, "_run", run)
    submit(scheduler, "b", prompt=4, output=3)
    stand_in.run_normal(scheduler)
    assert [int(row["step"]) for row in ring.read(Kind.STEP_SCHEDULED)] == [3, 4, 5]
    assert len(asked) == 1


class FakeEvent:
    """A device event that is over as soon as it is recorded; each comes a millisecond after the last."""

    recorded = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0

    def record(self) -> None:
        FakeEvent.recorded += 1
        self.at = FakeEvent.recorded

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "FakeEvent") -> float:
        return float(end.at - self.at)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_device_is_timed_round_the_forward_pass(
    ring: ListRing, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    cuda = SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: False, Event=FakeEvent
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    scheduler = stand_in.Scheduler()
    submit(scheduler, "a", prompt=4, output=3)
    run_loop(scheduler, loop)
    ranks = ring.read(Kind.STEP_RANK)
    assert [int(row["step"]) for row in ranks] == [*range(scheduler.forward_ct)]
    assert {int(row["device_ns"]) for row in ranks} == {1_000_000}
