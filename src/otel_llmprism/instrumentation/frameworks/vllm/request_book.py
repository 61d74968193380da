# The scheduler's requests: arrivals, moves and ends as records. It keeps what vLLM forgets, a few numbers a
# request that runs, and reads no token.
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from otel_llmprism.instrumentation.frameworks.vllm.carrier import (
    CARRIER_KEY,
    FRONT_END,
    HOST_MARK,
    Carrier,
    strip_carrier,
    take_carrier,
)
from otel_llmprism.instrumentation.request_records import NO_CONTEXT, RequestRecorder
from otel_llmprism.instrumentation.trace_context import SpanContext
from otel_llmprism.native.ring_records import Finish, RequestEvent

FINISHES: Mapping[str, Finish] = {  # of vLLM's RequestStatus, as vLLM's own finish reasons
    "FINISHED_STOPPED": Finish.STOP,
    "FINISHED_LENGTH_CAPPED": Finish.LENGTH,
    "FINISHED_ABORTED": Finish.ABORT,
    "FINISHED_IGNORED": Finish.LENGTH,
    "FINISHED_ERROR": Finish.ERROR,
    "FINISHED_REPETITION": Finish.STOP,
}

_LOOK_AFTER = 8192  # requests: then those are looked for whose end nobody told


@dataclass(slots=True)
class _Life:
    request: Any  # vLLM's own object
    has_front_end: bool
    cached_tokens: int = -1  # when first scheduled; -1 before
    preemptions: int = 0


class RequestBook:
    """One per scheduler; called by its thread alone."""

    def __init__(
        self, recorder: RequestRecorder, find_living: Callable[[], Container[str]], *, is_traced: bool
    ) -> None:
        self._recorder = recorder
        self._find_living = find_living  # the requests that vLLM has
        self._look_at = _LOOK_AFTER
        self._is_traced = is_traced  # vLLM makes spans of its own
        self._lives: dict[str, _Life] = {}
        # Scheduled, without a token yet, and no front end of this run to see it; always this dictionary.
        self.tokenless: dict[str, Any] = {}
        self._preempted: dict[str, int] = {}  # since the last step: computed tokens that are lost

    def admit(self, request: Any, now_ns: int) -> None:
        """Book the arrival of a request that the scheduler is about to take, and take our carrier out."""
        request_id, headers = request.request_id, request.trace_headers
        if len(self._lives) >= self._look_at:  # a vLLM that ends them elsewhere must not leak them
            self._end_gone(now_ns)
            self._look_at = 2 * len(self._lives) + _LOOK_AFTER
        if headers and CARRIER_KEY in headers and not self._is_traced:  # one call, if nothing is unusual
            flags = self._recorder.record_carried(request_id, headers[CARRIER_KEY], HOST_MARK, now_ns)
            if flags >= 0:
                strip_carrier(request)
                self._lives[request_id] = _Life(request, bool(flags & FRONT_END))
                return
        carrier, headers = take_carrier(headers)
        request.trace_headers = headers
        if carrier is None:
            carrier = Carrier(0, (headers or {}).get("traceparent", ""))
        self._lives[request_id] = _Life(request, carrier.has_front_end)
        context = self._recorder.record_arrival(
            request_id,
            carrier.arrival_ns or now_ns,
            carrier.traceparent,
            carrier.external_id,
            is_local_parent=carrier.is_local_parent,
            context=carrier.context,
            queued_ns=now_ns,
        )
        if self._is_traced and context is not NO_CONTEXT and "traceparent" not in (headers or {}):
            request.trace_headers = {**(headers or {}), "traceparent": write_traceparent(context)}

    def note_started(self, computed_tokens: Mapping[str, int], step: int, now_ns: int) -> None:
        """Book requests' first steps and returns, each with the tokens that it need not compute."""
        first, resumed = {}, {}
        for request_id, tokens in computed_tokens.items():
            life = self._lives.get(request_id)
            if life is None:  # it came before us
                continue
            if life.cached_tokens >= 0:
                resumed[request_id] = tokens
                continue
            first[request_id] = life.cached_tokens = tokens
            if not life.has_front_end:
                self.tokenless[request_id] = life.request
        if first:
            self._recorder.record_events(RequestEvent.SCHEDULED, now_ns, first, step)
        if resumed:
            self._recorder.record_events(RequestEvent.RESUMED, now_ns, resumed, step)

    def note_preempted(self, request_id: str, computed_tokens: int) -> None:
        """Remember a preemption until the step that made it has its id."""
        self._preempted[request_id] = computed_tokens
        life = self._lives.get(request_id)
        if life is not None:
            life.preemptions += 1

    def flush_preempted(self, step: int, now_ns: int) -> None:
        """Book the preemptions since the last step."""
        preempted, self._preempted = self._preempted, {}
        self._recorder.record_events(RequestEvent.PREEMPTED, now_ns, preempted, step)

    def note_outputs(self, step: int, ready_ns: int) -> None:
        """Book first tokens where no front end does."""
        for request_id, request in list(self.tokenless.items()):
            if request.num_output_tokens > 0:
                del self.tokenless[request_id]
                self._recorder.record_event(request_id, RequestEvent.FIRST_TOKEN, ready_ns, step)

    def catch_up(self, since_ns: int) -> None:
        """Take in what happened since then, while nothing was recorded: as much of it as is known."""
        self._preempted.clear()
        tokenless = self.tokenless.items()
        for name in [name for name, request in tokenless if request.num_output_tokens]:
            del self.tokenless[name]
        self._end_gone(since_ns)

    def note_ended(self, request: Any, now_ns: int) -> None:
        """Book a request's end with vLLM's totals."""
        request_id = request.request_id
        life = self._lives.pop(request_id, None)
        if life is None:
            return
        if request_id in self._preempted:
            self.flush_preempted(-1, now_ns)
        if request_id in self.tokenless:
            self.note_outputs(-1, now_ns)
            self.tokenless.pop(request_id, None)
        self._recorder.record_end(
            request_id,
            now_ns,
            FINISHES.get(request.status.name, Finish.UNKNOWN),
            prompt_tokens=request.num_prompt_tokens,
            output_tokens=request.num_output_tokens,
            cached_tokens=max(life.cached_tokens, 0),
            preemptions=life.preemptions,
        )

    def _end_gone(self, time_ns: int) -> None:
        """Book the ends of those that vLLM has no more; when they ended nobody saw."""
        living = self._find_living()
        for life in [life for request_id, life in self._lives.items() if request_id not in living]:
            self.tokenless.pop(life.request.request_id, None)
            self.note_ended(life.request, time_ns)


def write_traceparent(context: SpanContext) -> str:
    """Return the header that names this span as the parent."""
    return f"00-{context.trace_id.hex()}-{context.span_id.hex()}-{'01' if context.is_sampled else '00'}"
