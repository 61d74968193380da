# SGLang's tokenizer process: a request's arrival and caller, its first token and its end as they come back to
# it. Nothing is put on what SGLang sends: both sides know a request by SGLang's own id.
import functools
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from otel_llmprism.instrumentation.frameworks.sglang.launch import count_engines
from otel_llmprism.instrumentation.frameworks.sglang.request_lives import HEALTH_CHECK
from otel_llmprism.instrumentation.process_run import current_run, join_run
from otel_llmprism.instrumentation.quiet import quiet
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.instrumentation.trace_context import read_current_span
from otel_llmprism.native.ring_records import Finish, RequestEvent

_BOOK_ATTRIBUTE = "_llmprism_front"
_MAX_TRACEPARENT_CHARS = 512
_FINISHES = {"stop": Finish.STOP, "length": Finish.LENGTH, "abort": Finish.ABORT}

Method = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call of generate_request: one request of the engine, or several."""

    arrival_ns: int
    traceparent: str = ""
    is_local_parent: bool = False


_EXCHANGE: ContextVar[Exchange | None] = ContextVar("llmprism_sglang_exchange", default=None)


class FrontBook:
    """One per tokenizer manager; called by its event loop alone."""

    def __init__(self, recorder: RequestRecorder) -> None:
        self._recorder = recorder
        self._tokenless: dict[str, bool] = {}  # of those that live: whether the first token is to come

    def note_sent(self, rids: Iterable[str], exchange: Exchange) -> None:
        """Book requests that go to the scheduler now."""
        for rid in rids:
            if rid in self._tokenless or rid.startswith(HEALTH_CHECK):
                continue
            self._tokenless[rid] = True
            self._recorder.record_arrival(
                rid, exchange.arrival_ns, exchange.traceparent, is_local_parent=exchange.is_local_parent
            )

    def note_outputs(self, output: Any, now_ns: int) -> None:
        """Book first tokens and ends."""
        reasons = output.finished_reasons
        for rid, reason in zip(output.rids, reasons, strict=True):
            is_first = self._tokenless.get(rid)
            if is_first and not _is_abort(reason):
                self._tokenless[rid] = False
                self._recorder.record_event(rid, RequestEvent.FIRST_TOKEN, now_ns)
            if reason is not None and is_first is not None:
                self.note_end(rid, _read_finish(reason), now_ns)

    def note_end(self, rid: str, finish: Finish, now_ns: int) -> None:
        """Book an end as the caller is told of it."""
        if self._tokenless.pop(rid, None) is not None:
            self._recorder.record_event(rid, RequestEvent.RESPONDED, now_ns, tokens=finish)


def wrap_generate(original: Method) -> Method:
    """Note arrival and caller when the generator is made; the generator itself is SGLang's."""

    @functools.wraps(original)
    def generate_request(self: Any, obj: Any, request: Any = None, *args: Any, **kwargs: Any) -> Any:
        open_exchange(obj, request)
        return original(self, obj, request, *args, **kwargs)

    return generate_request


def wrap_send(original: Method) -> Method:
    """Book requests on their way to the scheduler, one or a batch."""

    @functools.wraps(original)
    def send_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        note_sent(self, [*args, *kwargs.values()])
        return original(self, *args, **kwargs)

    return send_request


def wrap_output(original: Method) -> Method:
    """Book what came back, before SGLang tells its callers."""

    @functools.wraps(original)
    def _handle_batch_output(self: Any, recv_obj: Any, *args: Any, **kwargs: Any) -> Any:
        note_outputs(self, recv_obj)
        return original(self, recv_obj, *args, **kwargs)

    return _handle_batch_output


def wrap_output_abort(original: Method) -> Method:
    """Book requests that the scheduler refused or aborted in its queue."""

    @functools.wraps(original)
    def _handle_abort_req(self: Any, recv_obj: Any, *args: Any, **kwargs: Any) -> Any:
        note_aborted(self, recv_obj)
        return original(self, recv_obj, *args, **kwargs)

    return _handle_abort_req


@quiet("sglang", None)
def open_exchange(obj: Any, request: Any) -> None:
    """Keep who calls for what this task sends from now on."""
    traceparent, is_local = read_current_span()
    if not traceparent:
        headers = getattr(request, "headers", None) or getattr(obj, "external_trace_header", None) or {}
        traceparent, is_local = str(headers.get("traceparent") or ""), False
    if len(traceparent) > _MAX_TRACEPARENT_CHARS:
        traceparent = ""
    _EXCHANGE.set(Exchange(time.monotonic_ns(), traceparent, is_local and bool(traceparent)))


@quiet("sglang", None)
def note_sent(manager: Any, values: list[Any]) -> None:
    """See FrontBook.note_sent; what is sent is the last of the values with an id, or a list of such."""
    book = _find_book(manager)
    if book is None:
        return
    lists = [value for value in values if isinstance(value, list)]
    sent = lists[0] if lists else [value for value in values if isinstance(getattr(value, "rid", None), str)]
    exchange = _EXCHANGE.get() or Exchange(time.monotonic_ns())
    book.note_sent([item.rid for item in sent], exchange)


@quiet("sglang", None)
def note_outputs(manager: Any, output: Any) -> None:
    """See FrontBook.note_outputs."""
    book = _find_book(manager)
    if book is not None:
        book.note_outputs(output, time.monotonic_ns())


@quiet("sglang", None)
def note_aborted(manager: Any, output: Any) -> None:
    """See FrontBook.note_end."""
    book = _find_book(manager)
    if book is not None:
        book.note_end(output.rid, Finish.ABORT, time.monotonic_ns())


def _find_book(manager: Any) -> FrontBook | None:
    if count_engines(manager.server_args) > 1:
        return None  # which of the engines takes a request is not known here
    book: FrontBook | None = manager.__dict__.get(_BOOK_ATTRIBUTE)
    run = current_run() or join_run("tokenizer")
    if run is None:
        return None
    if book is None:
        book = FrontBook(run.requests)
        setattr(manager, _BOOK_ATTRIBUTE, book)
    return book


def _read_finish(reason: Any) -> Finish:
    return _FINISHES.get(str(reason.get("type", "")), Finish.UNKNOWN)


def _is_abort(reason: Any) -> bool:
    return reason is not None and reason.get("type") == "abort"
