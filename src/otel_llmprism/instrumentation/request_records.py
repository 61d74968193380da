# The front end's and the scheduler's hooks about one request's life. Ids and numbers in, ring records
# out; no prompt, completion or token id can be passed. Never raises.
from collections.abc import Mapping
from typing import Any

from otel_llmprism.instrumentation.guard import HookState, Ring, guarded
from otel_llmprism.instrumentation.sampling import Sampler
from otel_llmprism.instrumentation.trace_context import SpanContext, draw_id, parse_traceparent
from otel_llmprism.native.extension import load_extension
from otel_llmprism.native.ring_records import (
    UNKNOWN_NS,
    Finish,
    RequestEvent,
    derive_request_handle,
    pack_request_arrived,
    pack_request_ended,
    pack_request_event,
)

_QUEUED = RequestEvent.QUEUED  # to look it up in its enumeration costs as much as a call
_NO_TRACE = bytes(16)
NO_CONTEXT = SpanContext(_NO_TRACE, bytes(8), bytes(8), is_sampled=False)


class RequestRecorder:
    """May be used by several threads."""

    def __init__(self, ring: Ring, sampler: Sampler, *, reads_context: bool) -> None:
        self.hook = HookState("request", ring)
        self._ring = ring
        self._sampler = sampler
        self._reads_context = reads_context
        self._native = getattr(ring, "native", None)  # the extension's way into the ring: it packs and puts
        self._extension: Any = load_extension() if self._native is not None else None

    @guarded(NO_CONTEXT)
    def fix_context(self, traceparent: str = "", *, is_local_parent: bool = False) -> SpanContext:
        """Draw a request's span context, a child of the caller's or a new root; nothing is recorded."""
        return self._draw_context(traceparent, is_local_parent=is_local_parent)

    @guarded(-1)
    def record_carried(self, request_id: str, carrier: str, host_mark: str, queued_ns: int) -> int:
        """Book an arrival as a carrier tells it, and return its flags; -1 when nothing was booked."""
        if self._extension is None:
            return -1
        flags = self._extension.put_arrival(self._native, request_id, carrier, host_mark, queued_ns)
        return -1 if flags is None else int(flags)

    @guarded(NO_CONTEXT)
    def record_arrival(
        self,
        request_id: str,
        arrival_ns: int,
        traceparent: str = "",
        external_id: str = "",
        *,
        is_local_parent: bool = False,
        context: SpanContext | None = None,
        queued_ns: int | None = None,
    ) -> SpanContext:
        """Book an arrival under `context`, where the front end has fixed one, else under a fresh one.

        `queued_ns` books with it that the scheduler has it since then, for less than a call of its own.
        Returns the request's span context; NO_CONTEXT on an error.
        """
        if context is None or context.trace_id == _NO_TRACE:  # the front end was off
            context = self._draw_context(traceparent, is_local_parent=is_local_parent)
        handle = derive_request_handle(request_id)
        record = pack_request_arrived(
            handle,
            arrival_ns,
            context.trace_id,
            context.span_id,
            context.parent_span_id,
            request_id,
            external_id,
            sampled=context.is_sampled,
            has_remote_parent=context.has_remote_parent,
        )
        if queued_ns is not None:
            record += pack_request_event(handle, queued_ns, _QUEUED)
        self._ring.put(record)
        return context

    def _draw_context(self, traceparent: str, *, is_local_parent: bool) -> SpanContext:
        caller = parse_traceparent(traceparent) if self._reads_context else None
        trace_id = caller.trace_id if caller else draw_id(16)
        return SpanContext(
            trace_id=trace_id,
            span_id=draw_id(8),
            parent_span_id=caller.span_id if caller else bytes(8),
            is_sampled=self._sampler(caller, trace_id),
            has_remote_parent=caller is not None and not is_local_parent,
        )

    @guarded(None)
    def record_event(
        self, request_id: str, event: RequestEvent, time_ns: int, step: int = -1, tokens: int = 0
    ) -> None:
        """Book one event in a request's life; `step` -1 when it belongs to none."""
        known = step if step >= 0 else UNKNOWN_NS
        put = self._extension and self._extension.put_events
        if put and put(self._native, event, time_ns, {request_id: tokens}, known):
            return
        self._ring.put(pack_request_event(derive_request_handle(request_id), time_ns, event, known, tokens))

    @guarded(None)
    def record_events(
        self, event: RequestEvent, time_ns: int, tokens_of: Mapping[str, int], step: int = -1
    ) -> None:
        """Book one event for several requests, all at once and for a fraction of what each would cost."""
        if tokens_of:
            known = step if step >= 0 else UNKNOWN_NS
            put = self._extension and self._extension.put_events
            if put and put(self._native, event, time_ns, tokens_of, known):
                return
            records = [
                pack_request_event(derive_request_handle(request_id), time_ns, event, known, tokens)
                for request_id, tokens in tokens_of.items()
            ]
            self._ring.put(b"".join(records))

    @guarded(None)
    def record_end(
        self,
        request_id: str,
        time_ns: int,
        finish: Finish,
        *,
        prompt_tokens: int,
        output_tokens: int,
        cached_tokens: int = 0,
        steps: int = 0,
        preemptions: int = 0,
    ) -> None:
        """Book a request's end with the engine's own totals."""
        totals = (prompt_tokens, output_tokens, cached_tokens, steps, preemptions)
        put = self._extension and self._extension.put_end
        if put and put(self._native, request_id, time_ns, *totals, finish):
            return
        record = pack_request_ended(
            derive_request_handle(request_id), time_ns, *totals, finish, error=finish is Finish.ERROR
        )
        self._ring.put(record)
