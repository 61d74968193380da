# A streaming client of an OpenAI-compatible server: what to ask in, what it saw of each answer and when
# (CLOCK_MONOTONIC) out. Runs as a program of its own, so that a test's threads do not delay its clock.
import asyncio
import bisect
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

MODULE = "otel_llmprism.testing.engine_client"
ANSWER_TIMEOUT_S = 120.0
_BEAT_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; a cancel closes its connection, by time or by what came, whichever is first."""

    name: str  # sent as X-Request-Id
    prompt: str
    max_tokens: int
    traceparent: str = ""
    cancel_after_s: float | None = None
    cancel_after_chunks: int | None = None
    can_end_early: bool = False  # at the end token; else only max_tokens ends it


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client saw; `first_ns` 0: not one token. `sent_ns` is when the request was handed over."""

    name: str
    status: int
    sent_ns: int
    first_ns: int
    ended_ns: int
    finish: str  # as the server says; "cancelled" by the client; "broken" when the stream just ended
    generated: int  # as the server counts; 0 when it did not come to that
    lateness_ns: int = 0  # how late the client itself came to a processor when it read first and last


class Heartbeat:
    """Sleeps a millisecond again and again: what it oversleeps, the client's readings may be late by."""

    def __init__(self) -> None:
        self._lateness: list[tuple[int, int]] = []  # (until, how late), in order

    async def beat(self) -> None:
        """Run until cancelled."""
        before_ns = time.monotonic_ns()
        while True:
            await asyncio.sleep(_BEAT_NS / 1e9)
            now_ns = time.monotonic_ns()
            self._lateness.append((now_ns, now_ns - before_ns - _BEAT_NS))
            before_ns = now_ns

    def find_lateness_ns(self, time_ns: int) -> int:
        """Return how late a reading at this time may have been: by the beats about it."""
        first = bisect.bisect_left(self._lateness, (time_ns - _BEAT_NS, 0))
        last = bisect.bisect_left(self._lateness, (time_ns, 0))
        return max((late for _, late in self._lateness[first : last + 1]), default=0)

    def find_worst_ns(self, answer: Answer) -> int:
        return max(map(self.find_lateness_ns, (answer.first_ns, answer.ended_ns)))


@dataclass(slots=True)
class _Stream:
    """One answer while it comes in."""

    status: int = 0
    first_ns: int = 0
    ended_ns: int = 0
    chunks: int = 0
    finish: str = "broken"
    generated: int = 0

    def take(self, line: bytes, now_ns: int) -> bool:
        """Note one line of the body; False once nothing follows."""
        if not line.startswith(b"data: "):
            return True  # sizes of chunks, and the empty lines between events
        if line.startswith(b"data: [DONE]"):
            self.ended_ns = now_ns
            return False
        event = json.loads(line[6:])
        for choice in event.get("choices", ()):
            self.first_ns = self.first_ns or now_ns
            self.chunks += 1
            self.finish = choice.get("finish_reason") or self.finish
        self.generated = (event.get("usage") or {}).get("completion_tokens", self.generated)
        return True


async def send_all(port: int, model: str, asks: Sequence[Ask], concurrency: int) -> list[Answer]:
    """Send all, at most `concurrency` at a time; answers in the order of `asks`."""
    places, heart = asyncio.Semaphore(concurrency), Heartbeat()

    async def send_in_turn(ask: Ask) -> Answer:
        async with places:
            return await send_one(port, model, ask)

    beating = asyncio.create_task(heart.beat())
    answers = await asyncio.gather(*(send_in_turn(ask) for ask in asks))
    await asyncio.sleep(2 * _BEAT_NS / 1e9)  # the beat in which the last answer ended is one more
    beating.cancel()
    return [replace(answer, lateness_ns=heart.find_worst_ns(answer)) for answer in answers]


async def send_one(port: int, model: str, ask: Ask) -> Answer:
    """Send one request on a connection of its own and read its stream until it ends or is cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stream = _Stream()
    sent_ns = time.monotonic_ns()
    writer.write(build_request(model, ask))
    try:
        async with asyncio.timeout(ask.cancel_after_s or ANSWER_TIMEOUT_S):
            await _read_stream(reader, stream, ask)
    except TimeoutError:
        stream.finish = "cancelled" if ask.cancel_after_s else "broken"
    except OSError:
        stream.finish = "broken"
    finally:
        writer.close()
    ended_ns = stream.ended_ns or time.monotonic_ns()
    return Answer(
        ask.name, stream.status, sent_ns, stream.first_ns, ended_ns, stream.finish, stream.generated
    )


def build_request(model: str, ask: Ask) -> bytes:
    """Return the whole HTTP request of one streamed completion."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": ask.prompt,
        "max_tokens": ask.max_tokens,
        "ignore_eos": not ask.can_end_early,
        "temperature": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    content = json.dumps(body).encode()
    headers = [
        "POST /v1/completions HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        f"X-Request-Id: {ask.name}",
        *([f"traceparent: {ask.traceparent}"] if ask.traceparent else []),
    ]
    return "\r\n".join(headers).encode() + b"\r\n\r\n" + content


async def _read_stream(reader: asyncio.StreamReader, stream: _Stream, ask: Ask) -> None:
    stream.status = int((await reader.readline()).split()[1])
    while (await reader.readline()).strip():
        pass  # the other headers say nothing that matters here
    while line := await reader.readline():
        if not stream.take(line, time.monotonic_ns()):
            return
        if ask.cancel_after_chunks is not None and stream.chunks >= ask.cancel_after_chunks:
            stream.finish = "cancelled"
            return


def main() -> int:
    """Read asks from the file that the command names, write answers to the other one."""
    with contextlib.suppress(OSError):  # where that is not allowed, lateness tells what it costs
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    port, model, concurrency, plan, out = sys.argv[1:]
    asks = [Ask(**ask) for ask in json.loads(Path(plan).read_text(encoding="utf-8"))]
    answers = asyncio.run(send_all(int(port), model, asks, int(concurrency)))
    Path(out).write_text(json.dumps([asdict(answer) for answer in answers]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
