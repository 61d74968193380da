# One HTTP exchange as its client sees it: when the request came, who called, when the first token and the end
# were sent. A pure ASGI layer round vLLM's app; it changes no message, and the app's errors are the app's.
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from otel_llmprism.instrumentation.frameworks.vllm.carrier import MAX_TRACEPARENT_CHARS
from otel_llmprism.instrumentation.quiet import quiet
from otel_llmprism.native.ring_records import Finish

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
_EVENT_STREAM = b"text/event-stream"


@dataclass(slots=True)
class Exchange:
    """The engine requests of one HTTP request: one, or several for n > 1 and lists of prompts."""

    arrival_ns: int
    traceparent: str = ""
    finishes: dict[str, Finish] = field(default_factory=dict)  # of each engine request; UNKNOWN: runs yet
    unsent: list[tuple[str, int]] = field(default_factory=list)  # first tokens: request, when they came out
    is_stream: bool = False
    is_answered: bool = False  # the last body message was sent
    is_over: bool = False  # what its task left behind may still run, with this as its context
    end_ns: int = 0


CURRENT_EXCHANGE: ContextVar[Exchange | None] = ContextVar("llmprism_exchange", default=None)


class Listener:
    """Who is told what a client has seen."""

    def note_first_token(self, request_id: str, time_ns: int) -> None:
        """Take that the client has this request's first token since `time_ns`."""

    def note_end(self, exchange: Exchange) -> None:
        """Take that the exchange is over, answered or not."""


class ExchangeLayer:
    """ASGI in, ASGI out."""

    def __init__(self, app: App, listener: Listener) -> None:
        self.app = app
        self._listener = listener

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        exchange = open_exchange(scope) if scope["type"] == "http" else None
        if exchange is None:
            await self.app(scope, receive, send)
            return

        async def send_and_note(message: Message) -> None:
            await send(message)
            note_sent(exchange, message, self._listener)

        def send_noted(message: Message) -> Awaitable[None]:
            # One a token and stream: nearly all say nothing new, and go without a coroutine of ours.
            if message.get("more_body") and not exchange.unsent:
                return send(message)
            return send_and_note(message)

        token = CURRENT_EXCHANGE.set(exchange)
        try:
            await self.app(scope, receive, send_noted)
        finally:
            close_exchange(exchange, self._listener)
            with contextlib.suppress(ValueError):  # closed from another context: nothing to put back
                CURRENT_EXCHANGE.reset(token)


@quiet("vllm", None)
def open_exchange(scope: Message) -> Exchange | None:
    """Note an arrival; None when it cannot be read."""
    return Exchange(time.monotonic_ns(), read_traceparent(scope["headers"]))


def read_traceparent(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the one `traceparent` header; several or an overlong one say nothing."""
    values = [value for name, value in headers if name == b"traceparent"]
    if len(values) != 1 or len(values[0]) > MAX_TRACEPARENT_CHARS:
        return ""
    return values[0].decode("ascii", "replace")


@quiet("vllm", None)
def note_sent(exchange: Exchange, message: Message, listener: Listener) -> None:
    """Note what a message that was just sent tells the client; called for each, so the rest is rare."""
    if message["type"] == "http.response.body":
        if exchange.unsent and exchange.is_stream and message.get("body"):
            _flush_first_tokens(exchange, listener, time.monotonic_ns())
        if not message.get("more_body", False):
            exchange.is_answered = True
            exchange.end_ns = time.monotonic_ns()
    elif message["type"] == "http.response.start":
        exchange.is_stream = _is_event_stream(message.get("headers", ()))


@quiet("vllm", None)
def close_exchange(exchange: Exchange, listener: Listener) -> None:
    """Note that the app is done with it, however that came about."""
    exchange.is_over = True
    exchange.end_ns = exchange.end_ns or time.monotonic_ns()
    _flush_first_tokens(exchange, listener, None)
    listener.note_end(exchange)


def _flush_first_tokens(exchange: Exchange, listener: Listener, sent_ns: int | None) -> None:
    unsent, exchange.unsent = exchange.unsent, []
    for request_id, came_out_ns in unsent:
        listener.note_first_token(request_id, came_out_ns if sent_ns is None else sent_ns)


def _is_event_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(_EVENT_STREAM) for name, value in headers)
