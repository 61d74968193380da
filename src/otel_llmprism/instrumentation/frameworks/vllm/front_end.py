# vLLM's front end: what comes in gets our carrier, and first tokens and ends are booked as the client sees
# them. Without HTTP (LLM.generate, AsyncLLM as a library) that is when the front end hands them out.
import functools
import os
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

from otel_llmprism.instrumentation.engine_run import ENGINE_ID_VARIABLE, EngineRun
from otel_llmprism.instrumentation.frameworks.vllm.carrier import CARRIER_KEY, Carrier, write_carrier
from otel_llmprism.instrumentation.frameworks.vllm.exchange import (
    CURRENT_EXCHANGE,
    Exchange,
    ExchangeLayer,
    Listener,
)
from otel_llmprism.instrumentation.frameworks.vllm.launch import read_replicas
from otel_llmprism.instrumentation.process_run import current_run, join_run
from otel_llmprism.instrumentation.quiet import quiet
from otel_llmprism.instrumentation.switches import read_switches
from otel_llmprism.instrumentation.trace_context import read_current_span
from otel_llmprism.native.ring_records import Finish, RequestEvent

_ROLE = "front-end"
_MAX_AGE_NS = 3_600_000_000_000  # of a request that vLLM says came earlier; more is a stepped clock
FINISHES = {
    "STOP": Finish.STOP,
    "LENGTH": Finish.LENGTH,
    "ABORT": Finish.ABORT,
    "ERROR": Finish.ERROR,
    "REPETITION": Finish.STOP,
}


@dataclass(slots=True)
class _Open:
    """One engine request that is under way in this process."""

    exchange: Exchange | None
    has_first_token: bool = False
    last_finish: Finish = Finish.UNKNOWN  # of its latest turn, where its input is streamed


class FrontEnd(Listener):
    """One per process; called by vLLM's event loop, or by the thread that drives the engine."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def add_request(self, request: Any, parent: Any) -> None:
        """Give a request our carrier before it leaves for the engine core."""
        run = find_run()
        if run is None and not _is_served_by_replicas():
            return
        exchange = CURRENT_EXCHANGE.get()
        if exchange is not None and exchange.is_over:
            exchange = None  # added in the background, after the caller had its answer
        headers = request.trace_headers or {}
        local = read_local_parent()
        traceparent = local or (exchange.traceparent if exchange else "") or headers.get("traceparent", "")
        context = run.requests.fix_context(traceparent, is_local_parent=bool(local)) if run else None
        carrier = Carrier(
            exchange.arrival_ns if exchange else _read_arrival(request),
            traceparent,
            getattr(request, "external_req_id", None)
            or getattr(parent, "request_id", None)
            or request.request_id,
            is_local_parent=bool(local),
            has_front_end=run is not None,
            context=context,
        )
        request.trace_headers = {**headers, CARRIER_KEY: write_carrier(carrier)}
        if run is not None and request.request_id not in self._open:
            self._open[request.request_id] = _Open(exchange)
            if exchange is not None:
                exchange.finishes[request.request_id] = Finish.UNKNOWN

    def note_added(self, request_id: str, living: Container[str]) -> None:
        """Take that a request was added, or the next part of one: after the last part it lives no more."""
        place = self._open.get(request_id)
        if place is not None and request_id not in living:
            self._finish(request_id, place.last_finish)

    def note_outputs(
        self, outputs: Iterable[Any], stopped_here: Iterable[str], living: Container[str] = ()
    ) -> None:
        """Look for first tokens and ends among the outputs that were just handed out.

        `living`: those that vLLM still has; what has finished and is among them waits for more input.
        """
        mine, now_ns = self._open, time.monotonic_ns()
        for output in outputs:
            place = mine.get(output.request_id)
            if place is None:
                continue
            if not place.has_first_token and output.new_token_ids:
                place.has_first_token = True
                if place.exchange is None:
                    self.note_first_token(output.request_id, now_ns)
                else:
                    place.exchange.unsent.append((output.request_id, now_ns))
            if output.finish_reason is not None:
                place.last_finish = FINISHES.get(output.finish_reason.name, Finish.UNKNOWN)
                if output.request_id not in living:
                    self._finish(output.request_id, place.last_finish)
        for request_id in stopped_here:  # at a stop string, which the core takes for an abort
            self._finish(request_id, Finish.STOP)

    def note_aborted(self, request_ids: Iterable[str]) -> None:
        """Take that these requests were given up before their end."""
        for request_id in request_ids:
            self._finish(request_id, Finish.ABORT)

    def note_first_token(self, request_id: str, time_ns: int) -> None:
        """Book that the client has a request's first token since `time_ns`."""
        self._record(request_id, RequestEvent.FIRST_TOKEN, time_ns, 0)

    def note_end(self, exchange: Exchange) -> None:
        """Book that the client has everything, or has gone."""
        for request_id, finish in exchange.finishes.items():
            place = self._open.get(request_id)
            if place is not None and exchange.is_answered:
                place.exchange = None  # it goes on in the background, and ends when it ends here
                continue
            self._open.pop(request_id, None)
            is_given_up = finish is Finish.UNKNOWN and not exchange.is_answered
            told = Finish.ABORT if is_given_up else finish
            self._record(request_id, RequestEvent.RESPONDED, exchange.end_ns, told)

    def _finish(self, request_id: str, finish: Finish) -> None:
        place = self._open.pop(request_id, None)
        if place is None:
            return
        if place.exchange is not None:
            place.exchange.finishes[request_id] = finish
        else:
            self._record(request_id, RequestEvent.RESPONDED, time.monotonic_ns(), finish)

    @staticmethod
    def _record(request_id: str, event: RequestEvent, time_ns: int, tokens: int) -> None:
        run = current_run()
        if run is not None:
            run.requests.record_event(request_id, event, time_ns, tokens=tokens)


FRONT_END = FrontEnd()


def wrap_build_app(original: Callable[..., Any]) -> Callable[..., Any]:
    """Put the exchange layer round vLLM's app."""

    @functools.wraps(original)
    def build_app(*args: Any, **kwargs: Any) -> Any:
        app = original(*args, **kwargs)
        add_layer(app)
        return app

    return build_app


def wrap_add_request(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give each engine request our carrier; also children of n > 1, on the task that serves the caller."""

    @functools.wraps(original)
    def add_request(
        self: Any, request: Any, prompt: Any, parent_req: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        note_request(request, parent_req)
        added = original(self, request, prompt, parent_req, *args, **kwargs)
        note_added(self, request)
        return added

    return add_request


def wrap_process_outputs(original: Callable[..., Any]) -> Callable[..., Any]:
    """Watch what is handed out."""

    @functools.wraps(original)
    def process_outputs(self: Any, engine_core_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        processed = original(self, engine_core_outputs, *args, **kwargs)
        note_outputs(self, engine_core_outputs, processed)
        return processed

    return process_outputs


def wrap_abort_requests(original: Callable[..., Any]) -> Callable[..., Any]:
    """Watch what is given up."""

    @functools.wraps(original)
    def abort_requests(self: Any, *args: Any, **kwargs: Any) -> Any:
        aborted = original(self, *args, **kwargs)
        note_aborted(aborted)
        return aborted

    return abort_requests


@quiet("vllm", None)
def add_layer(app: Any) -> None:
    """Add the layer outside vLLM's own ones, and join the run while nobody waits for an answer."""
    find_run()
    if app.middleware_stack is None:
        app.add_middleware(ExchangeLayer, listener=FRONT_END)
    else:  # vLLM has built it already, and it takes no more
        app.middleware_stack = ExchangeLayer(app.middleware_stack, FRONT_END)


@quiet("vllm", None)
def note_request(request: Any, parent: Any) -> None:
    """See FrontEnd.add_request."""
    FRONT_END.add_request(request, parent)


@quiet("vllm", None)
def note_added(processor: Any, request: Any) -> None:
    """See FrontEnd.note_added."""
    FRONT_END.note_added(request.request_id, processor.request_states)


@quiet("vllm", None)
def note_outputs(processor: Any, outputs: Any, processed: Any) -> None:
    """See FrontEnd.note_outputs."""
    FRONT_END.note_outputs(outputs, processed.reqs_to_abort, processor.request_states)


@quiet("vllm", None)
def note_aborted(request_ids: Any) -> None:
    """See FrontEnd.note_aborted."""
    FRONT_END.note_aborted(request_ids)


def find_run() -> EngineRun | None:
    """Return the run that this front end serves, joining it the first time; None when it cannot know it."""
    return current_run() or join_run(_ROLE)


def _is_served_by_replicas() -> bool:
    """Tell whether recording engine cores will read a carrier though this process has no run of its own."""
    return read_replicas() > 1 and ENGINE_ID_VARIABLE in os.environ and read_switches(os.environ).is_recording


def read_local_parent() -> str:
    """Return a `traceparent` of the span that is current in this process, "" when there is none."""
    traceparent, is_local = read_current_span()
    return traceparent if is_local else ""


def _read_arrival(request: Any) -> int:
    # vLLM notes the wall clock before it tokenizes; we come after that.
    age_ns = time.time_ns() - int(getattr(request, "arrival_time", 0.0) * 1e9)
    return time.monotonic_ns() - (age_ns if 0 <= age_ns <= _MAX_AGE_NS else 0)
