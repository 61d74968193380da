# One ended request -> its span under the caller's context, with queue, prefill and decode below it.
# Pure: everything measured comes in.
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_llmprism.exporters.otlp_attributes import AttributeValue, to_key_values
from otel_llmprism.exporters.otlp_spans import IS_REMOTE, IS_REMOTE_KNOWN, SAMPLED
from otel_llmprism.exporters.step_origin import StepOrigin
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.semconv import request as names
from otel_llmprism.semconv import step as step_names

_NS_PER_S = 1e9
FINISH_REASONS = ("", "stop", "length", "abort", "error", "tool_calls", "content_filter")
UNKNOWN_NS = -1


@dataclass(frozen=True, slots=True)
class RequestTexts:
    """What is equal for all requests of an engine."""

    operation: str
    provider: str
    model: str


def describe_requests(texts: RequestTexts) -> dict[str, str]:
    """Return the attributes that every request span and metric of the engine carries."""
    model = {names.GEN_AI_REQUEST_MODEL: texts.model} if texts.model else {}
    return {names.GEN_AI_OPERATION_NAME: texts.operation, names.GEN_AI_PROVIDER_NAME: texts.provider} | model


@dataclass(frozen=True, slots=True)
class Preemption:
    """The request lost its place; when it came back, `cached_tokens` of what it lost were still there."""

    preempted_ns: int
    lost_tokens: int
    resumed_ns: int = UNKNOWN_NS
    cached_tokens: int = 0

    def resume(self, resumed_ns: int, cached_tokens: int) -> "Preemption":
        return Preemption(self.preempted_ns, self.lost_tokens, resumed_ns, cached_tokens)


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """One request's life. Times are monotonic; UNKNOWN_NS where that point was never reached."""

    request_id: str
    external_id: str
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes  # zero bytes: a root
    has_remote_parent: bool
    arrival_ns: int
    scheduled_ns: int
    first_token_ns: int
    ended_ns: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    steps: int
    preemptions: int
    finish: int
    is_error: bool
    recomputed_tokens: int = 0
    preempted: tuple[Preemption, ...] = ()

    @property
    def ttft_s(self) -> float | None:
        return _to_seconds(self.arrival_ns, self.first_token_ns)

    @property
    def queue_s(self) -> float | None:
        return _to_seconds(self.arrival_ns, self.scheduled_ns)

    @property
    def tpot_s(self) -> float | None:
        """Mean time of the output tokens after the first."""
        whole_s = _to_seconds(self.first_token_ns, self.ended_ns)
        return whole_s / (self.output_tokens - 1) if whole_s is not None and self.output_tokens > 1 else None


def build_request_spans(
    request: EndedRequest, origin: StepOrigin, texts: RequestTexts, kept_steps: Sequence[int] = ()
) -> Iterator[Span]:
    """Yield the request's span and its phases; the decode span links to `kept_steps`."""
    yield _build_request(request, origin, texts)
    phases: tuple[tuple[str, int, int, dict[str, int]], ...] = (
        (
            names.SPAN_QUEUE,
            request.arrival_ns,
            request.scheduled_ns,
            {names.GEN_AI_USAGE_INPUT_TOKENS: request.prompt_tokens},
        ),
        (
            names.SPAN_PREFILL,
            request.scheduled_ns,
            request.first_token_ns,
            {
                names.GEN_AI_USAGE_INPUT_TOKENS: request.prompt_tokens,
                names.REQUEST_CACHED_TOKENS: request.cached_tokens,
            },
        ),
        (
            names.SPAN_DECODE,
            request.first_token_ns,
            request.ended_ns,
            {names.GEN_AI_USAGE_OUTPUT_TOKENS: request.output_tokens},
        ),
    )
    for name, start_ns, end_ns, counts in phases:
        if start_ns == UNKNOWN_NS:
            return  # it ended before
        last_ns = request.ended_ns if end_ns == UNKNOWN_NS else end_ns
        span = _build_phase(request, name, counts)
        span.start_time_unix_nano = origin.to_realtime_ns(start_ns)
        span.end_time_unix_nano = origin.to_realtime_ns(last_ns)
        if name != names.SPAN_QUEUE:
            span.events.extend(_build_events(request, origin, start_ns, end_ns))
        if name == names.SPAN_DECODE:
            span.links.extend(_to_step_link(origin, step) for step in kept_steps)
        yield span


def _build_request(request: EndedRequest, origin: StepOrigin, texts: RequestTexts) -> Span:
    has_parent = any(request.parent_span_id)
    # A local active span already counts the request; a second SERVER span would count it twice.
    is_server = request.has_remote_parent or not has_parent
    span = Span(
        trace_id=request.trace_id,
        span_id=request.span_id,
        parent_span_id=request.parent_span_id if has_parent else b"",
        flags=SAMPLED | IS_REMOTE_KNOWN | (IS_REMOTE if request.has_remote_parent else 0),
        name=names.SPAN_REQUEST,
        kind=Span.SPAN_KIND_SERVER if is_server else Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=origin.to_realtime_ns(request.arrival_ns),
        end_time_unix_nano=origin.to_realtime_ns(request.ended_ns),
        attributes=to_key_values(_describe_request(request, texts)),
    )
    if request.is_error:
        span.status.code = Status.STATUS_CODE_ERROR
    return span


def _describe_request(request: EndedRequest, texts: RequestTexts) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        **describe_requests(texts),
        names.GEN_AI_USAGE_INPUT_TOKENS: request.prompt_tokens,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: request.output_tokens,
        names.REQUEST_ID: request.request_id,
        names.REQUEST_STEPS: request.steps,
        names.REQUEST_PREEMPTIONS: request.preemptions,
        names.REQUEST_CACHED_TOKENS: request.cached_tokens,
        names.REQUEST_RECOMPUTED_TOKENS: request.recomputed_tokens,
    }
    if request.external_id:
        attributes[names.REQUEST_EXTERNAL_ID] = request.external_id
    if 0 < request.finish < len(FINISH_REASONS):
        attributes[names.GEN_AI_RESPONSE_FINISH_REASONS] = [FINISH_REASONS[request.finish]]
    measured = (
        (names.REQUEST_TTFT_S, request.ttft_s),
        (names.REQUEST_TPOT_S, request.tpot_s),
        (names.REQUEST_QUEUE_S, request.queue_s),
    )
    return attributes | {name: value for name, value in measured if value is not None}


def _build_phase(request: EndedRequest, name: str, counts: dict[str, int]) -> Span:
    return Span(
        trace_id=request.trace_id,
        # The trace may hold several requests, so the request's own span id goes in as well.
        span_id=derive_span_id(request.trace_id + request.span_id, name),
        parent_span_id=request.span_id,
        flags=SAMPLED | IS_REMOTE_KNOWN,
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        attributes=to_key_values({names.REQUEST_ID: request.request_id, **counts}),
    )


def _build_events(
    request: EndedRequest, origin: StepOrigin, start_ns: int, end_ns: int
) -> Iterator[Span.Event]:
    """Yield the preemptions of a phase; one without an end (`end_ns` unknown) has all that came later."""
    for one in request.preempted:
        for time_ns, name, counts in (
            (one.preempted_ns, names.EVENT_PREEMPTED, {names.REQUEST_LOST_TOKENS: one.lost_tokens}),
            (one.resumed_ns, names.EVENT_RESUMED, {names.REQUEST_CACHED_TOKENS: one.cached_tokens}),
        ):
            if start_ns <= time_ns and (time_ns < end_ns or end_ns in {UNKNOWN_NS, request.ended_ns}):
                yield Span.Event(
                    time_unix_nano=origin.to_realtime_ns(time_ns),
                    name=name,
                    attributes=to_key_values(counts),
                )


def _to_step_link(origin: StepOrigin, step: int) -> Span.Link:
    trace_id = derive_step_trace_id(origin.engine_id, origin.run, step)
    return Span.Link(
        trace_id=trace_id,
        span_id=derive_span_id(trace_id, step_names.SPAN_STEP),
        flags=SAMPLED | IS_REMOTE_KNOWN,
        attributes=to_key_values({step_names.STEP_ID: step}),
    )


def _to_seconds(start_ns: int, end_ns: int) -> float | None:
    if UNKNOWN_NS in (start_ns, end_ns):
        return None
    return (end_ns - start_ns) / _NS_PER_S
