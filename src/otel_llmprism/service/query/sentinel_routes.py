# The sentinel's part of our query API: engines and their chart blocks, findings, and what a person says about
# one. Reads the sentinel through its view only, and the store only to tell which steps were kept.
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.service.query import parameters
from otel_llmprism.service.query import sentinel_json as shapes
from otel_llmprism.service.query.answer import Answering
from otel_llmprism.service.query.errors import BadParameterError, QueryError
from otel_llmprism.service.query.kept_steps import SpanNames, find_kept_steps
from otel_llmprism.service.query.llmprism_routes import PREFIX, shape_error
from otel_llmprism.service.query.merge_blocks import merge_blocks
from otel_llmprism.service.query.sentinel_view import FindingView, SentinelView

DEFAULT_SECONDS = 600
MAX_SECONDS = 7 * 86400
MAX_BLOCKS = 2000  # a page has fewer pixels
DEFAULT_FINDINGS = 200
MAX_FINDINGS = 1000
MAX_HISTORY = 500
MAX_SILENCE_S = 30 * 86400
_MAX_ID = 256
_STATES = {"active", *(str(state) for state in FindingState)}
Json = dict[str, Any]


class _Silence(msgspec.Struct, forbid_unknown_fields=True):
    seconds: int


@dataclass(frozen=True, slots=True)
class SentinelApi:
    """Each method answers one request."""

    view: SentinelView
    reader: SpanNames | None  # None: a service without a store
    read_time_ns: Callable[[], int]

    def build_routes(self, places: threading.Semaphore) -> list[BaseRoute]:
        answering = Answering(shape_error, places)
        questions = {
            "/engines": self._list_engines,
            "/engines/{engine_id:path}/series": self._read_series,
            "/findings": self._list_findings,
            "/findings/{finding_id}": self._read_finding,
        }
        actions = {"acknowledge": self._acknowledge, "dismiss": self._dismiss, "silence": self._silence}
        return [
            *(
                Route(PREFIX + path, answering.build_endpoint(ask), methods=["GET"])
                for path, ask in questions.items()
            ),
            *(
                Route(
                    f"{PREFIX}/findings/{{finding_id}}/{name}", answering.build_action(act), methods=["POST"]
                )
                for name, act in actions.items()
            ),
        ]

    def _list_engines(self, request: Request) -> Json:
        parameters.refuse_unknown(request.query_params, set())
        return {"engines": [shapes.to_engine(engine) for engine in self.view.list_engines()]}

    def _read_series(self, request: Request) -> Json:
        params = request.query_params
        parameters.refuse_unknown(params, {"seconds", "end"})
        seconds = parameters.read_count(params, "seconds", DEFAULT_SECONDS, MAX_SECONDS)
        end_ns = parameters.read_time_ns(params, "end", self.read_time_ns())
        begin_ns = max(0, end_ns - seconds * 10**9)
        engine_id = _read_id(request, "engine_id")
        blocks = self.view.read_series(engine_id, begin_ns, end_ns)
        if blocks is None:
            raise QueryError(404, "engine not found", "it may have sent nothing yet; /engines lists them")
        merged = merge_blocks(blocks, MAX_BLOCKS)
        return {
            "engine": engine_id,
            "begin_ns": begin_ns,
            "end_ns": end_ns,
            "is_merged": len(merged) < len(blocks),
            "blocks": [shapes.to_block(block) for block in merged],
        }

    def _list_findings(self, request: Request) -> Json:
        params = request.query_params
        parameters.refuse_unknown(params, {"state", "engine", "kind", "limit"})
        state = parameters.read_text(params, "state")
        if state is not None and state not in _STATES:
            raise BadParameterError("state", "unknown", f"send one of {', '.join(sorted(_STATES))}")
        limit = parameters.read_count(params, "limit", DEFAULT_FINDINGS, MAX_FINDINGS)
        engine, kind = parameters.read_text(params, "engine"), parameters.read_text(params, "kind")
        views = self.view.list_findings()
        chosen = shapes.rank_findings([view for view in views if _answers(view, state, engine, kind)])
        return {
            "findings": [shapes.to_finding(view) for view in chosen[:limit]],
            "found": len(chosen),
            "active": sum(map(shapes.is_active, views)),
        }

    def _read_finding(self, request: Request) -> Json:
        parameters.refuse_unknown(request.query_params, set())
        found = self.view.read_finding(_read_id(request, "finding_id"))
        if found is None:
            raise _say_missing()
        return self._describe(*found)

    def _acknowledge(self, request: Request, body: bytes) -> Json:
        _read_nothing(body)
        return self._say_done(request, self.view.acknowledge(_read_id(request, "finding_id")))

    def _dismiss(self, request: Request, body: bytes) -> Json:
        _read_nothing(body)
        return self._say_done(request, self.view.dismiss(_read_id(request, "finding_id")))

    def _silence(self, request: Request, body: bytes) -> Json:
        hint = f'send {{"seconds": 3600}}; 0 ends the silence, at most {MAX_SILENCE_S}'
        try:
            seconds = msgspec.json.decode(body, type=_Silence).seconds
        except msgspec.DecodeError as error:
            raise BadParameterError("seconds", "not understood", hint) from error
        if not 0 <= seconds <= MAX_SILENCE_S:
            raise BadParameterError("seconds", "not in range", hint)
        until_ns = self.read_time_ns() + seconds * 10**9
        return self._say_done(request, self.view.silence(_read_id(request, "finding_id"), until_ns))

    def _say_done(self, request: Request, is_known: bool) -> Json:
        if not is_known:
            raise _say_missing()
        return self._read_finding(request)

    def _describe(self, view: FindingView, history: Sequence[Finding]) -> Json:
        return {
            **shapes.to_finding(view),
            "history": [shapes.to_state(one) for one in history[-MAX_HISTORY:]],
            "steps": find_kept_steps(view.finding, self.reader),
        }


def _answers(view: FindingView, state: str | None, engine: str | None, kind: str | None) -> bool:
    one = view.finding
    if state == "active" and not shapes.is_active(view):
        return False
    if state not in {None, "active", str(one.state)}:
        return False
    if engine is not None and engine not in {one.engine_id, *one.engines}:
        return False
    return kind is None or kind == one.kind


def _read_id(request: Request, name: str) -> str:
    text = str(request.path_params[name])
    if not 1 <= len(text) <= _MAX_ID:
        raise BadParameterError(name, "no id", f"send 1 to {_MAX_ID} characters")
    return text


def _read_nothing(body: bytes) -> None:
    if body.strip() not in {b"", b"{}"}:
        raise BadParameterError("body", "not empty", "send {}")


def _say_missing() -> QueryError:
    return QueryError(404, "finding not found", "it may be forgotten already; /findings lists what there is")
