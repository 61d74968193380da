# Runs one question in a worker thread, a few at a time, and turns what goes wrong into JSON with a
# status and a hint. The shape of an error is the caller's (Jaeger's, or ours).
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from otel_llmprism.exporters.store.connection_pool import QuestionTooLongError, StoreUnreadableError
from otel_llmprism.service.query.errors import QueryError

_logger = logging.getLogger(__name__)

MAX_AT_A_TIME = 4  # an answer may hold thousands of spans in memory
_WAIT_S = 10.0

MAX_BODY_BYTES = 4096

Question = Callable[[Request], Any]
Action = Callable[[Request, bytes], Any]
ErrorShape = Callable[[int, str, str], Any]
Endpoint = Callable[[Request], Awaitable[Response]]


class Answering:
    """Makes endpoints out of plain functions from a request to JSON-able data."""

    def __init__(self, shape_error: ErrorShape, places: threading.Semaphore) -> None:
        self._shape_error = shape_error
        self._places = places

    def build_endpoint(self, question: Question) -> Endpoint:
        """Return the endpoint that answers `question` or says why not."""

        async def answer(request: Request) -> Response:
            status, body = await run_in_threadpool(self._answer_bounded, question, request)
            return Response(body, status, media_type="application/json")

        return answer

    def build_action(self, action: Action) -> Endpoint:
        """Return the endpoint that does `action` with a small JSON body, or says why not.

        Only JSON is taken: a form of another site can send none without asking the browser first.
        """

        async def act(request: Request) -> Response:
            status, said = await self._act(action, request)
            return Response(said, status, media_type="application/json")

        return act

    async def _act(self, action: Action, request: Request) -> tuple[int, bytes]:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/json":
            return self._refuse(415, "only JSON is taken", "send Content-Type: application/json")
        try:
            body = await _read_body(request)
        except ClientDisconnect:
            return self._refuse(400, "the body did not arrive", "send it whole")
        if body is None:
            return self._refuse(413, "the body is too large", f"send at most {MAX_BODY_BYTES} bytes")
        return await run_in_threadpool(self._answer_bounded, lambda asked: action(asked, body), request)

    def _answer_bounded(self, question: Question, request: Request) -> tuple[int, bytes]:
        if not self._places.acquire(timeout=_WAIT_S):
            return self._refuse(503, "too many questions at a time", "ask again in a moment")
        try:
            return 200, encode_json(question(request))
        except QueryError as error:
            return self._refuse(error.status, error.message, error.hint)
        except QuestionTooLongError as error:
            return self._refuse(503, str(error), "narrow the time, name a service, or lower the limit")
        except StoreUnreadableError as error:
            return self._refuse(503, str(error), "see the log of otel-llmprism")
        except Exception:
            _logger.exception("a question to the store failed")
            return self._refuse(
                500, "the question failed inside otel-llmprism", "see its log; please report it"
            )
        finally:
            self._places.release()

    def _refuse(self, status: int, message: str, hint: str) -> tuple[int, bytes]:
        return status, encode_json(self._shape_error(status, message, hint))


async def _read_body(request: Request) -> bytes | None:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            return None
    return body


def encode_json(data: object) -> bytes:
    """Return compact JSON that any browser reads (no NaN, no lone surrogates)."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
