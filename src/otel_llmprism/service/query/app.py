# Puts the query API, the page (or a list of paths in its place) and the guard into one application.
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from otel_llmprism.service.query.answer import MAX_AT_A_TIME
from otel_llmprism.service.query.jaeger_routes import JaegerApi
from otel_llmprism.service.query.llmprism_routes import PREFIX, LlmprismApi, shape_error
from otel_llmprism.service.query.sentinel_routes import SentinelApi


@dataclass(frozen=True, slots=True)
class Apis:
    jaeger: JaegerApi
    llmprism: LlmprismApi
    sentinel: SentinelApi


def build_app(apis: Apis, page_routes: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application; without a page, `/` says where the API is."""
    places = threading.Semaphore(MAX_AT_A_TIME)
    # Engines and findings come from memory: they need not queue behind searches of the store.
    own_places = threading.Semaphore(MAX_AT_A_TIME)
    routes = [*apis.jaeger.build_routes(places), *apis.llmprism.build_routes(places)]
    routes += [*apis.sentinel.build_routes(own_places), *page_routes]
    if not page_routes:
        routes.append(Route("/", _show_paths, methods=["GET"]))
    return Starlette(routes=routes, exception_handlers={HTTPException: _say_error})


async def _show_paths(_request: Request) -> Response:
    return JSONResponse({"api": [PREFIX, "/api/services", "/api/traces"]})


async def _say_error(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else "failed"
    return JSONResponse(shape_error(status, detail, f"{PREFIX} lists what there is"), status)
