# The streaming client against a scripted server: what it sends, and what it makes of what it sees.
import asyncio
import json
from collections.abc import Sequence

import pytest

from otel_llmprism.testing.engine_client import Answer, Ask, build_request, send_all
from otel_llmprism.testing.engine_load import LoadPlan, build_asks

TOKEN = b'data: {"choices": [{"text": "w5", "finish_reason": null}]}\n\n'
LAST = b'data: {"choices": [{"text": "w6", "finish_reason": "length"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\n'
DONE = b"data: [DONE]\n\n"


def ask_server(parts: Sequence[bytes], asks: Sequence[Ask]) -> list[Answer]:
    """Answer every request by these parts, as chunks; a part `b""` waits for the client to go."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split()[0])
        await reader.readexactly(size)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for part in parts:
            if not part:
                await reader.read()
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            await writer.drain()
        writer.close()

    async def run() -> list[Answer]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await send_all(port, "model", asks, concurrency=2)

    return asyncio.run(run())


def test_a_whole_answer_is_timed_and_counted() -> None:
    (answer,) = ask_server([TOKEN, LAST, USAGE, DONE], [Ask("a", "w1", 2)])
    assert (answer.name, answer.status, answer.finish, answer.generated) == ("a", 200, "length", 2)
    assert answer.sent_ns < answer.first_ns <= answer.ended_ns
    assert answer.lateness_ns >= 0


def test_answers_come_in_the_order_of_the_asks() -> None:
    answers = ask_server([LAST, DONE], [Ask(f"a{number}", "w1", 1) for number in range(7)])
    assert [answer.name for answer in answers] == [f"a{number}" for number in range(7)]


@pytest.mark.parametrize(
    "ask", [Ask("a", "w1", 9, cancel_after_chunks=1), Ask("a", "w1", 9, cancel_after_s=0.05)]
)
def test_a_cancelled_request_closes_its_connection(ask: Ask) -> None:
    """The server waits until the client is gone: otherwise this would not end."""
    (answer,) = ask_server([TOKEN, b"", DONE], [ask])
    assert answer.finish == "cancelled"


def test_a_stream_that_just_ends_is_broken() -> None:
    (answer,) = ask_server([TOKEN], [Ask("a", "w1", 2)])
    assert (answer.finish, answer.generated) == ("broken", 0)


def test_the_request_names_itself_and_its_caller() -> None:
    request = build_request("model", Ask("a", "w1 w2", 3, traceparent="00-ab-cd-01", can_end_early=True))
    head, _, body = request.partition(b"\r\n\r\n")
    assert b"X-Request-Id: a" in head
    assert b"traceparent: 00-ab-cd-01" in head
    assert json.loads(body)["ignore_eos"] is False


def test_the_same_plan_gives_the_same_asks() -> None:
    plan = LoadPlan(50, seed=3, cancelled=0.3, unsampled=0.2, shares_prefix=0.5, canary="secret")
    asks = build_asks(plan)
    assert asks == build_asks(plan)
    assert all("secret" in ask.prompt.split() for ask in asks)
    assert all(len(ask.prompt.split()) <= plan.prompt_words[1] for ask in asks)
    assert {ask.traceparent[-2:] for ask in asks} == {"00", "01"}
