# The deep-dive relay over HTTP: anyone with the token files a request, the engines' exporters come for
# theirs. JSON in and out, bounded; who may ask is decided before anything is read.
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from otel_llmprism.receivers.auth import BearerToken
from otel_llmprism.service.control_book import ControlBook, DeepDive, RequestRefusedError
from otel_llmprism.service.query.guard import LOOPBACK_HOSTS

PATH = "/v1/control/requests"
VERSION = 1
MAX_BODY_BYTES = 4096
_OUTCOMES = {"done": True, "failed": False}
Answer = Callable[[Request], Awaitable[Response]]


class _BadRequestError(Exception):
    pass


class ControlApp:
    """The three places; `token` None admits only those who ask a listener on loopback by its name."""

    def __init__(
        self,
        book: ControlBook,
        token: BearerToken | None,
        *,
        is_loopback: bool,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._book = book
        self._token = token
        self._is_loopback = is_loopback
        self._clock = clock

    def build_routes(self) -> list[Route]:
        return [
            Route(PATH, self.admit(self._answer_poll), methods=["GET"]),
            Route(PATH, self.admit(self._answer_filing), methods=["POST"]),
            Route(PATH + "/{request_id}", self.admit(self._answer_state), methods=["GET"]),
            Route(PATH + "/{request_id}", self.admit(self._answer_outcome), methods=["POST"]),
        ]

    def admit(self, answer: Answer) -> Answer:
        """Return `answer` behind the check of who asks."""

        async def admitted(request: Request) -> Response:
            if (refusal := self._refuse(request)) is not None:
                return refusal
            try:
                return await answer(request)
            except _BadRequestError as error:
                return _say(400, str(error))
            except RequestRefusedError as error:
                return _say_refused(error)

        return admitted

    def _refuse(self, request: Request) -> Response | None:
        if self._token is not None:
            if self._token.allows(request.headers.get("authorization", "").encode("latin-1")):
                return None
            refusal = _say(401, "a token is needed: send Authorization: Bearer ...")
            refusal.headers["WWW-Authenticate"] = "Bearer"
            return refusal
        host = request.headers.get("host", "").rpartition(":")[0].strip("[]").lower()
        # A page in a browser here must not reach it either, by its own script or a rebound name.
        if not self._is_loopback or host not in LOOPBACK_HOSTS or "origin" in request.headers:
            return _say(403, "without service.control.token_file only this machine may ask")
        return None

    async def _answer_poll(self, request: Request) -> Response:
        granted = self._book.take_granted(request.query_params.get("engine", ""), self._clock())
        requests = [] if granted is None else [_describe(granted)]
        return JSONResponse({"version": VERSION, "requests": requests})

    async def _answer_filing(self, request: Request) -> Response:
        body = await _read_object(request)
        engine, steps = body.get("engine"), body.get("steps", 20)
        if not isinstance(engine, str) or not isinstance(steps, int) or isinstance(steps, bool):
            raise _BadRequestError('send {"engine": "...", "steps": 20}')
        filed = self._book.file_request(engine, steps, self._clock())
        return JSONResponse({"version": VERSION, **_describe(filed)}, 202)

    async def _answer_state(self, request: Request) -> Response:
        found = self._book.find(request.path_params["request_id"], self._clock())
        if found is None:
            return _say(404, "no such request, or it ended a while ago")
        return JSONResponse({"version": VERSION, **_describe(found)})

    async def _answer_outcome(self, request: Request) -> Response:
        outcome = (await _read_object(request)).get("outcome")
        if not isinstance(outcome, str) or outcome not in _OUTCOMES:
            raise _BadRequestError(f"outcome takes {' or '.join(_OUTCOMES)}")
        request_id = request.path_params["request_id"]
        is_known = self._book.settle(request_id, self._clock(), is_done=_OUTCOMES[outcome])
        return Response(status_code=204) if is_known else _say(404, "no such request is open")


async def _read_object(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise _BadRequestError("send Content-Type: application/json")
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > MAX_BODY_BYTES:
            raise _BadRequestError(f"send at most {MAX_BODY_BYTES} bytes")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _BadRequestError("this is no JSON") from error
    if not isinstance(body, dict):
        raise _BadRequestError("send a JSON object")
    return body


def _describe(request: DeepDive) -> dict[str, object]:
    return {
        "id": request.id,
        "engine": request.engine,
        "steps": request.steps,
        "state": request.state.value,
    }


def _say(status: int, message: str) -> Response:
    return JSONResponse({"error": {"status": status, "message": message}}, status)


def _say_refused(error: RequestRefusedError) -> Response:
    refusal = _say(429 if error.retry_after_s > 0 else 400, str(error))
    if error.retry_after_s > 0:
        refusal.headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    return refusal
