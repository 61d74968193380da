import time
from typing import Any

import pytest

from otel_llmprism.instrumentation import process_run
from otel_llmprism.instrumentation.frameworks.vllm import core, request_book
from otel_llmprism.instrumentation.frameworks.vllm.carrier import CARRIER_KEY, Carrier, write_carrier
from otel_llmprism.instrumentation.frameworks.vllm.scheduler_book import TICKET_ATTRIBUTE, list_resumed
from otel_llmprism.instrumentation.quiet import quiet
from otel_llmprism.native.ring_records import Finish, Kind, RequestEvent, StepKind

QUEUED, SCHEDULED = RequestEvent.QUEUED, RequestEvent.SCHEDULED
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def step(scheduler: Any, plan: dict[str, int], sampled: dict[str, bool] | None = None) -> Any:
    scheduler.plan = plan
    output = scheduler.schedule()
    scheduler.update_from_output(output, sampled or {})
    return output


def test_a_step_is_booked_with_what_the_scheduler_gave(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    for name, prompt in (("a", 4), ("b", 9)):
        scheduler.add_request(vllm.Request(name, prompt))
    step(scheduler, {"a": 4})
    step(scheduler, {"a": 1, "b": 6})
    step(scheduler, {"a": 1, "b": 3})
    step(scheduler, {"a": 1, "b": 1})
    rows = run.list_rows(Kind.STEP_SCHEDULED)
    assert [(int(r["step"]), int(r["prefill_tokens"]), int(r["decode_tokens"])) for r in rows] == [
        (0, 4, 0),
        (1, 6, 1),
        (2, 3, 1),
        (3, 0, 2),
    ]
    assert [int(row["kind"]) for row in rows] == [
        StepKind.PREFILL,
        StepKind.MIXED,
        StepKind.MIXED,
        StepKind.DECODE,
    ]
    assert [int(row["kv_tokens"]) for row in rows] == [4, 11, 15, 17]


def test_a_schedule_call_without_tokens_is_no_step(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    output = step(scheduler, {})
    assert run.ring.records == []
    assert not hasattr(output, TICKET_ATTRIBUTE)


def test_the_ticket_is_a_plain_tuple_on_the_output(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    scheduler.add_request(vllm.Request("a", 4))
    output = step(scheduler, {"a": 4})
    assert type(getattr(output, TICKET_ATTRIBUTE)) is tuple
    assert getattr(output, TICKET_ATTRIBUTE)[0] == 0
    assert len(run.list_rows(Kind.STEP_OUTPUT)) == 1


def test_results_that_come_late_belong_to_their_own_steps(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    scheduler.add_request(vllm.Request("a", 2))
    outputs = []
    for count in (2, 1):
        scheduler.plan = {"a": count}
        outputs.append(scheduler.schedule())
    for output in outputs:
        scheduler.update_from_output(output, {"a": False})
    assert [int(row["step"]) for row in run.list_rows(Kind.STEP_OUTPUT)] == [0, 1]


def test_a_preempted_request_tells_what_it_lost_and_what_it_found_again(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    for name in "ab":
        scheduler.add_request(vllm.Request(name, 4))
    step(scheduler, {"a": 4, "b": 4}, {"a": False, "b": False})
    scheduler.victims = ["b"]
    step(scheduler, {"a": 1})
    scheduler.requests["b"].num_computed_tokens = 3  # a cached prefix
    step(scheduler, {"a": 1, "b": 2})
    assert run.list_events("b") == [
        (QUEUED, 0),
        (SCHEDULED, 0),
        (RequestEvent.FIRST_TOKEN, 0),
        (RequestEvent.PREEMPTED, 4),
        (RequestEvent.RESUMED, 3),
    ]
    assert [int(row["preemptions"]) for row in run.list_rows(Kind.STEP_SCHEDULED)] == [0, 1, 0]
    assert int(run.list_rows(Kind.STEP_SCHEDULED)[2]["prefill_tokens"]) == 2


def test_a_preempted_request_that_is_given_up_tells_both(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    for name in "ab":
        scheduler.add_request(vllm.Request(name, 4))
    step(scheduler, {"a": 4, "b": 4})
    scheduler.victims = ["b"]
    scheduler.plan = {}
    scheduler.schedule()
    given_up = scheduler.requests["b"]
    given_up.status = vllm.Status.FINISHED_ABORTED
    scheduler._free_request(given_up)
    (end,) = run.list_rows(Kind.REQUEST_ENDED)
    assert (int(end["finish"]), int(end["preemptions"])) == (Finish.ABORT, 1)
    assert run.list_events("b")[-1] == (RequestEvent.PREEMPTED, 4)


def test_an_end_has_the_engines_own_totals(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    scheduler.add_request(vllm.Request("a", 8, num_computed_tokens=5))
    step(scheduler, {"a": 3}, {"a": False})
    step(scheduler, {"a": 1}, {"a": True})
    (end,) = run.list_rows(Kind.REQUEST_ENDED)
    totals = [int(end[name]) for name in ("prompt_tokens", "output_tokens", "cached_tokens", "finish")]
    assert totals == [8, 2, 5, Finish.LENGTH]
    assert run.list_events("a")[1] == (SCHEDULED, 5)


def test_the_carrier_is_taken_out_before_the_scheduler_sees_the_request(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    arrival_ns = time.monotonic_ns() - 5_000_000
    carrier = write_carrier(Carrier(arrival_ns, TRACEPARENT, "mine", has_front_end=True))
    request = vllm.Request("a", 4, {CARRIER_KEY: carrier, "tracestate": "x=1"})
    scheduler.add_request(request)
    step(scheduler, {"a": 4}, {"a": False})
    (arrival,) = run.list_rows(Kind.REQUEST_ARRIVED)
    assert int(arrival["arrival_ns"]) == arrival_ns
    assert bytes(arrival["trace_id"]).hex() == TRACEPARENT.split("-")[1]
    assert request.trace_headers == {"tracestate": "x=1"}
    assert [event for event, _ in run.list_events("a")] == [QUEUED, SCHEDULED]  # the front end tells the rest


def test_a_carrier_does_not_stay_when_nothing_is_recorded(vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_run, "_run", None)
    scheduler = vllm.Scheduler()
    request = vllm.Request("a", 4, {CARRIER_KEY: write_carrier(Carrier(1))})
    scheduler.add_request(request)
    assert request.trace_headers is None


def test_without_a_caller_vllms_own_span_gets_our_context_when_vllm_traces(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    scheduler.vllm_config.observability_config.otlp_traces_endpoint = "http://collector"
    free, called = vllm.Request("a", 4), vllm.Request("b", 4, {"traceparent": TRACEPARENT})
    scheduler.add_request(free)
    scheduler.add_request(called)
    arrival = run.list_rows(Kind.REQUEST_ARRIVED)[0]
    assert free.trace_headers["traceparent"].split("-")[1:3] == [
        bytes(arrival["trace_id"]).hex(),
        bytes(arrival["span_id"]).hex(),
    ]
    assert called.trace_headers == {"traceparent": TRACEPARENT}


def test_the_next_part_of_a_streamed_input_is_no_second_arrival(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    for _ in range(2):
        scheduler.add_request(vllm.Request("a", 4))
    assert len(run.list_rows(Kind.REQUEST_ARRIVED)) == 1


def test_errors_and_results_of_the_scheduler_pass_through(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler()
    scheduler.add_request(vllm.Request("a", 4))
    scheduler.plan = {"a": 4}
    output = scheduler.schedule()
    assert scheduler.update_from_output(output, {}) == "outputs of 1"
    scheduler.failure = RuntimeError("theirs")
    with pytest.raises(RuntimeError, match="theirs"):
        scheduler.update_from_output(output, {})
    assert len(run.list_rows(Kind.STEP_OUTPUT)) == 2


def test_a_scheduler_of_another_shape_works_on_and_is_told_of_twice(
    run: Any, vllm: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A hook that is off stays off in its process; this one is the test's own.
    monkeypatch.setattr(core, "note_scheduled", quiet("vllm", None)(vars(core.note_scheduled)["__wrapped__"]))
    scheduler = vllm.Scheduler()
    scheduler.add_request(vllm.Request("a", 400))
    del scheduler.kv_cache_manager
    for _ in range(20):
        step(scheduler, {"a": 1})
    assert scheduler.requests["a"].num_computed_tokens == 20
    said = [record.getMessage() for record in caplog.records if "vllm.note_scheduled" in record.getMessage()]
    assert ["goes on" in said[0], "is off" in said[1]] == [True, True]
    assert len(said) == 2
    assert run.list_rows(Kind.STEP_SCHEDULED) == []


def test_flags_of_older_releases_name_the_resumed(vllm: Any) -> None:
    cached = vllm.CachedRequests(["a", "b", "c"], [7, 8, 9])
    del cached.resumed_req_ids
    cached.resumed_from_preemption = [False, True, False]
    assert list_resumed(cached) == {"b": 8}
    cached.resumed_from_preemption = [False] * 3
    assert list_resumed(cached) == {}


def test_a_release_that_preempts_inside_schedule_is_watched_where_it_frees_blocks(
    run: Any, vllm: Any
) -> None:
    hooked = {
        name: wrap(vars(vllm.PlainScheduler)[name])
        for name, wrap in {
            "add_request": core.wrap_add_request,
            "schedule": core.wrap_schedule,
            "_free_request": core.wrap_free_request,
        }.items()
    }
    left_out = ("_preempt_request", "__dict__", "__weakref__")
    names = [name for name in vars(vllm.PlainScheduler) if name not in left_out]
    old = type("Old", (), {**{name: vars(vllm.PlainScheduler)[name] for name in names}, **hooked})
    scheduler: Any = old()
    freed: list[str] = []
    scheduler.kv_cache_manager.free = lambda request: freed.append(request.request_id)
    scheduler.add_request(vllm.Request("a", 4))
    scheduler.plan = {"a": 4}
    scheduler.schedule()
    request = scheduler.requests["a"]
    scheduler.kv_cache_manager.free(request)
    request.status, request.num_computed_tokens = vllm.Status.PREEMPTED, 0
    scheduler.schedule()
    assert freed == ["a"]
    assert run.list_events("a")[2:] == [(RequestEvent.PREEMPTED, 4), (RequestEvent.RESUMED, 0)]


def test_batches_that_alternate_between_stages_keep_their_lanes(run: Any, vllm: Any) -> None:
    scheduler = vllm.Scheduler(pipeline_parallel_size=2)
    for name in "abcd":
        scheduler.add_request(vllm.Request(name, 4))
    for plan in ({"a": 4, "b": 4}, {"c": 4, "d": 4}, {"a": 1, "b": 1}, {"c": 1, "d": 1}, {"c": 1, "d": 1}):
        step(scheduler, plan)
    lanes = [int(row["lane"]) for row in run.list_rows(Kind.STEP_SCHEDULED)]
    assert lanes[0] == lanes[2]
    assert lanes[1] == lanes[3] == lanes[4]
    assert lanes[0] != lanes[1]


def test_what_ran_on_unrecorded_is_known_again_after_waking(
    run: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = vllm.Scheduler()
    for name in "ab":
        scheduler.add_request(vllm.Request(name, 4))
    step(scheduler, {"a": 2, "b": 2})
    monkeypatch.setattr(process_run, "_run", None)
    step(scheduler, {"a": 1, "b": 2}, {"b": True})
    monkeypatch.setattr(process_run, "_run", run)
    step(scheduler, {"a": 1})
    step(scheduler, {"a": 1})
    rows = run.list_rows(Kind.STEP_SCHEDULED)
    assert [(int(row["prefill_tokens"]), int(row["decode_tokens"])) for row in rows[1:]] == [(1, 0), (0, 1)]


def test_who_ended_unrecorded_has_ended_when_that_began(
    run: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = vllm.Scheduler()
    for name in "ab":
        scheduler.add_request(vllm.Request(name, 4))
    step(scheduler, {"a": 4, "b": 4})
    monkeypatch.setattr(process_run, "_run", None)
    before_ns = time.monotonic_ns()
    step(scheduler, {"a": 1, "b": 1})
    after_ns = time.monotonic_ns()
    step(scheduler, {"a": 1, "b": 1}, {"b": True})
    monkeypatch.setattr(process_run, "_run", run)
    step(scheduler, {"a": 1}, {"a": False})
    (end,) = run.list_rows(Kind.REQUEST_ENDED)
    assert before_ns <= end["time_ns"] <= after_ns
    assert (int(end["finish"]), int(end["output_tokens"])) == (Finish.LENGTH, 1)
    assert run.list_events("b")[2:] == [], "when its first token came nobody saw"


def test_a_scheduler_that_ends_requests_elsewhere_leaks_none_of_them(
    run: Any, vllm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_book, "_LOOK_AFTER", 4)
    scheduler = vllm.Scheduler()
    for at in range(40):
        scheduler.add_request(vllm.Request(f"r{at}", 4))
        scheduler.requests.pop(f"r{at - 2}", None)  # no call of ours
    ended = len(run.list_rows(Kind.REQUEST_ENDED))
    assert 30 <= ended <= 38
