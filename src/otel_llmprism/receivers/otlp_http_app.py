# OTLP/HTTP as an ASGI application: checks a request's head, reads its body within bounds, lets a worker
# thread decompress, convert and admit it, and answers in the encoding it was asked in.
import asyncio
import contextlib
import math
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from otel_llmprism.model.signals import Signal
from otel_llmprism.receivers.admission import Admission
from otel_llmprism.receivers.auth import BearerToken
from otel_llmprism.receivers.limits import Gate, IntakeLimits
from otel_llmprism.receivers.otlp_answers import (
    Answer,
    Reply,
    encode_response,
    encode_response_json,
    encode_status,
    encode_status_json,
)
from otel_llmprism.receivers.otlp_http_body import (
    ENCODINGS,
    BodyDamagedError,
    BodyTooLargeError,
    decompress_body,
)
from otel_llmprism.receivers.otlp_json import MalformedJsonError, encode_json_request

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_PATHS = {f"/v1/{signal.value}": signal for signal in Signal}
_LINGER_S = 2.0  # for a refused client that still sends: closing at once could lose it our answer
_CLOSING = {Reply.TOO_LARGE, Reply.TOO_SLOW, Reply.UNAUTHENTICATED, Reply.BUSY}
_CAUSES = {
    Reply.UNAUTHENTICATED: "unauthenticated",
    Reply.WRONG_METHOD: "wrong_method",
    Reply.NO_SUCH_PATH: "wrong_path",
    Reply.WRONG_CONTENT: "wrong_content",
    Reply.TOO_LARGE: "too_large",
    Reply.TOO_SLOW: "too_slow",
    Reply.BUSY: "busy",
    Reply.MALFORMED: "malformed",
}


class RefusedError(Exception):
    """Ends a request early with its answer."""

    def __init__(self, reply: Reply, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.answer = Answer(reply, message, retry_after_s=retry_after_s)


class HungUpError(Exception):
    """The client went away before its request was whole."""


@dataclass(frozen=True, slots=True)
class _Head:
    signal: Signal
    is_json: bool
    encoding: str


class OtlpHttpApp:
    """An ASGI application; blocking work goes to `workers`."""

    def __init__(
        self,
        admission: Admission,
        limits: IntakeLimits,
        token: BearerToken | None,
        workers: Executor,
        max_json_bytes: int,
    ) -> None:
        self._admission = admission
        self._limits = limits
        self._max_json_bytes = min(max_json_bytes, limits.max_request_bytes)
        self._token = token
        self._workers = workers
        self._gate = Gate(limits.max_concurrent)
        # As objects, JSON takes many times its size: one request at a time bounds that.
        self._json_turn = threading.Lock()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        content_type = ""
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
            head = self._check_head(scope, headers, content_type)
            answer = await self._take_in(head, headers, receive)
        except RefusedError as refusal:
            self._admission.count_refusal(_CAUSES[refusal.answer.reply])
            await _send_refusal(refusal.answer, content_type, receive, send)
        except HungUpError:
            self._admission.count_refusal("hung_up")
        else:
            if answer.reply is Reply.OK:
                await _send_success(head, answer, send)
            else:
                await _send_refusal(answer, content_type, receive, send)

    def _check_head(self, scope: Message, headers: MutableMapping[str, str], content_type: str) -> _Head:
        signal = _PATHS.get(scope["path"])
        if signal is None:
            raise RefusedError(Reply.NO_SUCH_PATH, f"send to {', '.join(_PATHS)}")
        if scope["method"] != "POST":
            raise RefusedError(Reply.WRONG_METHOD, "send with POST")
        authorization = headers.get("authorization", "").encode("latin-1")
        if self._token is not None and not self._token.allows(authorization):
            raise RefusedError(Reply.UNAUTHENTICATED, "a valid bearer token is required")
        if content_type not in {PROTOBUF, JSON}:
            raise RefusedError(Reply.WRONG_CONTENT, f"send Content-Type {PROTOBUF} or {JSON}")
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ENCODINGS:
            raise RefusedError(Reply.WRONG_CONTENT, "send Content-Encoding gzip, zstd or none")
        return _Head(signal, content_type == JSON, encoding)

    async def _take_in(self, head: _Head, headers: MutableMapping[str, str], receive: Receive) -> Answer:
        if not self._gate.try_enter():
            why = f"{self._limits.max_concurrent} requests are being taken in; send again later"
            raise RefusedError(Reply.BUSY, why, self._limits.retry_after_s)
        try:
            body = await self._read_body(head, headers, receive)
            return await asyncio.get_running_loop().run_in_executor(self._workers, self._admit, head, body)
        finally:
            self._gate.leave()

    def _limit_bytes(self, head: _Head) -> int:
        return self._max_json_bytes if head.is_json else self._limits.max_request_bytes

    async def _read_body(self, head: _Head, headers: MutableMapping[str, str], receive: Receive) -> bytes:
        max_bytes = self._limit_bytes(head)
        why = f"the request is larger than {max_bytes} bytes; {_choose_mend(head)}"
        said = headers.get("content-length", "")
        if said.isdecimal() and int(said[:20]) > max_bytes:
            raise RefusedError(Reply.TOO_LARGE, why)
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.receive_timeout_s):
                async for piece in _list_pieces(receive):
                    pieces.append(piece)
                    size += len(piece)
                    if size > max_bytes:
                        raise RefusedError(Reply.TOO_LARGE, why)
        except TimeoutError:
            why = f"the request took longer than {self._limits.receive_timeout_s:g} s to arrive"
            raise RefusedError(Reply.TOO_SLOW, why) from None
        return b"".join(pieces)

    def _admit(self, head: _Head, body: bytes) -> Answer:
        """Run in a worker thread."""
        try:
            payload = decompress_body(body, head.encoding, self._limit_bytes(head))
            if head.is_json:
                with self._json_turn:
                    payload = encode_json_request(head.signal, payload)
        except BodyTooLargeError as error:
            raise RefusedError(Reply.TOO_LARGE, f"{error}; {_choose_mend(head)}") from error
        except (BodyDamagedError, MalformedJsonError) as error:
            raise RefusedError(Reply.MALFORMED, str(error)) from error
        return self._admission.admit(head.signal, payload)


def _choose_mend(head: _Head) -> str:
    mend = "send smaller batches"
    return f"{mend} or protobuf, or raise max_json_bytes" if head.is_json else mend


async def _list_pieces(receive: Receive) -> Any:
    is_more = True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HungUpError
        yield message.get("body", b"")
        is_more = message.get("more_body", False)


async def _send_success(head: _Head, answer: Answer, send: Send) -> None:
    encode = encode_response_json if head.is_json else encode_response
    body = encode(head.signal, answer)
    await send(_start_response(200, JSON if head.is_json else PROTOBUF, body, []))
    await send({"type": "http.response.body", "body": body})


async def _send_refusal(answer: Answer, content_type: str, receive: Receive, send: Send) -> None:
    """Answer in the encoding of the request; plain text when that is not ours to speak."""
    extra: list[tuple[bytes, bytes]] = []
    if answer.retry_after_s > 0:
        extra.append((b"retry-after", b"%d" % math.ceil(answer.retry_after_s)))
    if answer.reply is Reply.WRONG_METHOD:
        extra.append((b"allow", b"POST"))
    if answer.reply is Reply.UNAUTHENTICATED:
        extra.append((b"www-authenticate", b"Bearer"))
    if answer.reply is Reply.WRONG_CONTENT:
        extra.append((b"accept-encoding", b"gzip, zstd"))
    if content_type == PROTOBUF:
        body = encode_status(answer)
    elif content_type == JSON:
        body = encode_status_json(answer)
    else:
        content_type, body = "text/plain; charset=utf-8", answer.message.encode()
    is_closing = answer.reply in _CLOSING
    if is_closing:
        extra.append((b"connection", b"close"))
    await send(_start_response(answer.reply.http_status, content_type, body, extra))
    await send({"type": "http.response.body", "body": body, "more_body": is_closing})
    if is_closing:
        with contextlib.suppress(TimeoutError, HungUpError):
            async with asyncio.timeout(_LINGER_S):
                async for _ in _list_pieces(receive):
                    pass
        await send({"type": "http.response.body", "body": b""})


def _start_response(
    status: int, content_type: str, body: bytes, extra: list[tuple[bytes, bytes]]
) -> dict[str, Any]:
    headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body)), *extra]
    return {"type": "http.response.start", "status": status, "headers": headers}
