import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from otel_llmprism.instrumentation import process_run
from otel_llmprism.instrumentation.engine_run import ENGINE_ID_VARIABLE, FOLDER_VARIABLE
from otel_llmprism.instrumentation.frameworks.vllm import front_end
from otel_llmprism.instrumentation.frameworks.vllm.carrier import CARRIER_KEY, Carrier, take_carrier
from otel_llmprism.instrumentation.frameworks.vllm.exchange import (
    CURRENT_EXCHANGE,
    Exchange,
    ExchangeLayer,
    close_exchange,
)
from otel_llmprism.instrumentation.frameworks.vllm.front_end import FrontEnd, read_local_parent
from otel_llmprism.instrumentation.frameworks.vllm.launch import REPLICAS_VARIABLE
from otel_llmprism.native.ring_records import Finish, RequestEvent

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FIRST_TOKEN, RESPONDED = RequestEvent.FIRST_TOKEN, RequestEvent.RESPONDED


def make_request(name: str, **changes: Any) -> Any:
    fields = {"request_id": name, "external_req_id": "mine", "trace_headers": None, **changes}
    return SimpleNamespace(**{"arrival_time": time.time(), **fields})


def make_output(name: str, tokens: int = 1, finish: str = "") -> Any:
    reason = SimpleNamespace(name=finish) if finish else None
    return SimpleNamespace(request_id=name, new_token_ids=[0] * tokens, finish_reason=reason)


def read_carrier(request: Any) -> Carrier:
    carrier, _ = take_carrier(request.trace_headers)
    assert carrier is not None
    return carrier


@pytest.fixture
def exchange() -> Any:
    one = Exchange(1_000, TRACEPARENT)
    token = CURRENT_EXCHANGE.set(one)
    yield one
    CURRENT_EXCHANGE.reset(token)


def test_a_request_of_an_exchange_carries_its_arrival_and_caller(run: Any, exchange: Any) -> None:
    request = make_request("a", trace_headers={"tracestate": "x=1"})
    FrontEnd().add_request(request, None)
    carrier = read_carrier(request)
    assert carrier.context is not None
    assert carrier.context.trace_id.hex() == TRACEPARENT.split("-")[1]
    assert carrier == Carrier(1_000, TRACEPARENT, "mine", has_front_end=True, context=carrier.context)
    assert request.trace_headers["tracestate"] == "x=1"


def test_the_callers_own_headers_are_not_changed_in_place(run: Any) -> None:
    headers = {"traceparent": TRACEPARENT}
    request = make_request("a", trace_headers=headers)
    FrontEnd().add_request(request, None)
    assert headers == {"traceparent": TRACEPARENT}
    assert read_carrier(request).traceparent == TRACEPARENT
    assert CARRIER_KEY in request.trace_headers


def test_without_http_a_request_came_when_vllm_says(run: Any) -> None:
    before_ns = time.monotonic_ns()
    request = make_request("a", arrival_time=time.time() - 0.5)
    FrontEnd().add_request(request, None)
    assert 0.3e9 < before_ns - read_carrier(request).arrival_ns < 0.6e9


def test_a_stepped_clock_makes_no_request_a_day_old(run: Any) -> None:
    before_ns = time.monotonic_ns()
    request = make_request("a", arrival_time=time.time() - 86_400)
    FrontEnd().add_request(request, None)
    assert read_carrier(request).arrival_ns >= before_ns


def test_a_span_round_the_call_is_the_parent(
    run: Any, exchange: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(is_valid=True, is_remote=False, trace_id=0xAB, span_id=0xCD, trace_flags=1)
    span = SimpleNamespace(get_span_context=lambda: context)
    trace = ModuleType("opentelemetry.trace")
    trace.get_current_span = lambda: span  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)
    request = make_request("a")
    FrontEnd().add_request(request, None)
    carrier = read_carrier(request)
    assert carrier.is_local_parent
    assert carrier.traceparent == f"00-{0xAB:032x}-{0xCD:016x}-01"
    context.is_remote = True
    assert read_local_parent() == ""
    context.is_remote, context.is_valid = False, False
    assert read_local_parent() == ""


def test_opentelemetry_is_not_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    assert read_local_parent() == ""
    assert "opentelemetry.trace" not in sys.modules


def test_first_token_and_end_are_those_of_the_client(run: Any, exchange: Any) -> None:
    front = FrontEnd()
    front.add_request(make_request("a"), None)
    front.note_outputs([make_output("a"), make_output("stranger")], [])
    front.note_outputs([make_output("a", finish="LENGTH")], [])
    assert run.list_events("a") == []
    assert [name for name, _ in exchange.unsent] == ["a"]
    exchange.is_answered, exchange.end_ns = True, 5_000
    front.note_end(exchange)
    assert run.list_events("a") == [(RESPONDED, Finish.LENGTH)]


def test_several_requests_of_one_exchange_each_get_their_end(run: Any, exchange: Any) -> None:
    front = FrontEnd()
    parent = SimpleNamespace(request_id="p")
    for name in ("0_p", "1_p"):
        front.add_request(make_request(name), parent)
    front.note_outputs([make_output("0_p", finish="STOP")], [])
    front.note_aborted(["1_p"])
    exchange.is_answered = True
    front.note_end(exchange)
    assert run.list_events("0_p") == [(RESPONDED, Finish.STOP)]
    assert run.list_events("1_p") == [(RESPONDED, Finish.ABORT)]


def test_a_client_that_left_early_aborted(run: Any, exchange: Any) -> None:
    front = FrontEnd()
    front.add_request(make_request("a"), None)
    front.note_end(exchange)
    assert run.list_events("a") == [(RESPONDED, Finish.ABORT)]
    front.note_outputs([make_output("a", finish="LENGTH")], [])
    assert len(run.list_events("a")) == 1


@pytest.mark.parametrize("is_added_first", [True, False])
def test_a_request_in_the_background_ends_when_it_ends(run: Any, exchange: Any, is_added_first: bool) -> None:
    front = FrontEnd()
    if is_added_first:
        front.add_request(make_request("a"), None)
    exchange.is_answered = True  # with no more than that it is queued
    close_exchange(exchange, front)
    if not is_added_first:
        front.add_request(make_request("a"), None)  # its task has the exchange as its context still
    assert run.list_events("a") == []
    front.note_outputs([make_output("a")], [])
    front.note_outputs([make_output("a", finish="STOP")], [])
    assert run.list_events("a") == [(FIRST_TOKEN, 0), (RESPONDED, Finish.STOP)]


def test_a_stop_string_is_a_stop_though_the_core_hears_of_an_abort(run: Any) -> None:
    front = FrontEnd()
    front.add_request(make_request("a"), None)
    front.note_outputs([make_output("a")], ["a"])
    assert run.list_events("a") == [(FIRST_TOKEN, 0), (RESPONDED, Finish.STOP)]


def test_a_request_that_streams_its_input_ends_with_its_last_part(run: Any) -> None:
    front = FrontEnd()
    for _ in range(2):  # two turns
        front.add_request(make_request("a"), None)
        front.note_added("a", {"a"})
        front.note_outputs([make_output("a"), make_output("a", finish="LENGTH")], [], {"a"})
    assert run.list_events("a") == [(FIRST_TOKEN, 0)]
    front.add_request(make_request("a"), None)
    front.note_added("a", set())  # vLLM has taken it out: this part said that no more comes
    assert run.list_events("a") == [(FIRST_TOKEN, 0), (RESPONDED, Finish.LENGTH)]


def test_without_http_a_request_ends_when_it_is_handed_out(run: Any) -> None:
    front = FrontEnd()
    for name in "ab":
        front.add_request(make_request(name), None)
    front.note_outputs([make_output("a"), make_output("b", tokens=0, finish="ERROR")], [])
    front.note_outputs([make_output("a", finish="REPETITION")], [])
    assert run.list_events("a") == [(FIRST_TOKEN, 0), (RESPONDED, Finish.STOP)]
    assert run.list_events("b") == [(RESPONDED, Finish.ERROR)]


def test_nothing_is_carried_when_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (FOLDER_VARIABLE, ENGINE_ID_VARIABLE, REPLICAS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(process_run, "_run", None)
    request = make_request("a")
    FrontEnd().add_request(request, None)
    assert request.trace_headers is None


def test_with_replicas_the_cores_tell_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv(REPLICAS_VARIABLE, "2")
    monkeypatch.setenv(ENGINE_ID_VARIABLE, "engine")
    monkeypatch.setenv("OTEL_LLMPRISM_MODE", "sentinel")
    monkeypatch.setattr(process_run, "_run", None)
    request = make_request("a")
    FrontEnd().add_request(request, None)
    carrier = read_carrier(request)
    assert carrier.context is None
    assert not carrier.has_front_end


def test_wrappers_return_what_vllm_returned_and_survive_strange_outputs(run: Any) -> None:
    processed = SimpleNamespace(reqs_to_abort=[])
    watch = front_end.wrap_process_outputs(lambda _self, _outputs: processed)
    processor = SimpleNamespace(request_states={})
    assert watch(processor, [object()]) is processed
    assert watch(None, []) is processed
    abort = front_end.wrap_abort_requests(lambda _self, names, internal: [*names, internal])
    assert abort(None, ["a"], internal=True) == ["a", True]
    add = front_end.wrap_add_request(
        lambda _self, request, prompt, _parent, index=0: (request, prompt, index)
    )
    request = make_request("a")
    assert add(None, request, "text", None, 3) == (request, "text", 3)


@pytest.mark.parametrize("is_built", [False, True])
def test_the_layer_is_put_round_the_app_whether_its_layers_are_built_or_not(
    run: Any, *, is_built: bool
) -> None:
    added: list[Any] = []
    app = SimpleNamespace(
        middleware_stack="built" if is_built else None,
        add_middleware=lambda layer, listener: added.append((layer, listener)),
    )
    assert front_end.wrap_build_app(lambda _args: app)("args") is app
    if is_built:
        assert isinstance(app.middleware_stack, ExchangeLayer)
        assert vars(app.middleware_stack)["app"] == "built"
    else:
        assert added == [(ExchangeLayer, front_end.FRONT_END)]
