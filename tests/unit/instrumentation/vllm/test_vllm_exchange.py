import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from otel_llmprism.instrumentation.frameworks.vllm.exchange import (
    CURRENT_EXCHANGE,
    Exchange,
    ExchangeLayer,
    Listener,
    read_traceparent,
)

TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")]
Talk = Callable[[Any, Any], Awaitable[None]]


class Ear(Listener):
    def __init__(self) -> None:
        self.first: list[tuple[str, int]] = []
        self.ended: list[Exchange] = []

    def note_first_token(self, request_id: str, time_ns: int) -> None:
        self.first.append((request_id, time_ns))

    def note_end(self, exchange: Exchange) -> None:
        self.ended.append(exchange)


def serve(talk: Talk, ear: Ear, scope: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Run one exchange with an app that only talks; return what was sent."""
    sent: list[dict[str, Any]] = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await talk(receive, send)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    layer = ExchangeLayer(app, ear)
    asyncio.run(layer(scope or {"type": "http", "headers": [(b"traceparent", TRACEPARENT)]}, receive, send))
    return sent


def body(text: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": more}


def test_messages_pass_through_as_they_are() -> None:
    messages = [{"type": "http.response.start", "status": 200}, body(b"x", more=False)]

    async def talk(_receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    ear = Ear()
    sent = serve(talk, ear)
    assert [id(message) for message in sent] == [id(message) for message in messages]
    assert ear.ended[0].is_answered
    assert ear.ended[0].traceparent == TRACEPARENT.decode()


def test_a_streams_first_token_is_there_when_the_client_has_it() -> None:
    async def talk(_receive: Any, send: Any) -> None:
        exchange = CURRENT_EXCHANGE.get()
        assert exchange is not None
        await send({"type": "http.response.start", "headers": STREAM})
        await send(body(b": keep-alive", more=True))
        exchange.unsent.append(("a", 1))
        await send(body(b"", more=True))
        assert ear.first == []
        await send(body(b"data: token", more=True))
        assert [name for name, _ in ear.first] == ["a"]
        await send(body(b"", more=False))

    ear = Ear()
    serve(talk, ear)
    assert ear.first[0][1] > ear.ended[0].arrival_ns
    assert ear.ended[0].end_ns >= ear.first[0][1]


def test_without_a_stream_the_first_token_is_there_when_it_came_out() -> None:
    async def talk(_receive: Any, send: Any) -> None:
        exchange = CURRENT_EXCHANGE.get()
        assert exchange is not None
        exchange.unsent.append(("a", 17))
        await send({"type": "http.response.start", "headers": [(b"content-type", b"application/json")]})
        await send(body(b"{}", more=False))

    ear = Ear()
    serve(talk, ear)
    assert ear.first == [("a", 17)]


def test_an_apps_error_stays_its_own_and_ends_the_exchange() -> None:
    async def talk(_receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "headers": STREAM})
        raise RuntimeError("theirs")

    ear = Ear()
    with pytest.raises(RuntimeError, match="theirs"):
        serve(talk, ear)
    assert [exchange.is_answered for exchange in ear.ended] == [False]
    assert ear.ended[0].end_ns > 0


def test_a_cancelled_exchange_ends_and_stays_cancelled() -> None:
    ear = Ear()

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()

    async def wait_for_ever() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(_message: Any) -> None:
        pass

    async def cancel() -> None:
        task = asyncio.create_task(
            ExchangeLayer(app, ear)({"type": "http", "headers": []}, wait_for_ever, send)
        )
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert [exchange.is_answered for exchange in ear.ended] == [False]


def test_a_failing_send_is_the_apps_to_see() -> None:
    ear = Ear()
    seen: list[type[BaseException]] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        try:
            await send(body(b"x", more=False))
        except OSError as error:
            seen.append(type(error))

    async def send(_message: Any) -> None:
        raise ConnectionResetError

    asyncio.run(ExchangeLayer(app, ear)({"type": "http", "headers": []}, None, send))  # type: ignore[arg-type]
    assert seen == [ConnectionResetError]
    assert not ear.ended[0].is_answered


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_other_kinds_of_connections_are_left_alone(kind: str) -> None:
    async def talk(_receive: Any, send: Any) -> None:
        assert CURRENT_EXCHANGE.get() is None
        await send({"type": f"{kind}.accept"})

    ear = Ear()
    assert serve(talk, ear, {"type": kind}) == [{"type": f"{kind}.accept"}]
    assert ear.ended == []


def test_a_scope_without_headers_is_served_unwatched() -> None:
    async def talk(_receive: Any, send: Any) -> None:
        await send(body(b"x", more=False))

    ear = Ear()
    assert len(serve(talk, ear, {"type": "http"})) == 1
    assert ear.ended == []


def test_an_exchange_is_over_for_what_comes_after_it() -> None:
    async def talk(_receive: Any, _send: Any) -> None:
        pass

    serve(talk, Ear())
    assert CURRENT_EXCHANGE.get() is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], ""),
        ([(b"traceparent", TRACEPARENT)], TRACEPARENT.decode()),
        ([(b"traceparent", TRACEPARENT), (b"traceparent", TRACEPARENT)], ""),
        ([(b"traceparent", b"x" * 513)], ""),
        ([(b"traceparent", b"\xff\xfe")], "��"),
    ],
)
def test_only_one_header_of_sane_length_is_a_callers_context(
    headers: list[tuple[bytes, bytes]], expected: str
) -> None:
    assert read_traceparent(headers) == expected
