# The deep-dive relay and the answers of the sentinel as our services offer them: beside the health pages, on
# their address, to whoever has the token or sits on this machine.
import threading
import time

from starlette.routing import Route

from otel_llmprism.receivers.auth import BearerToken
from otel_llmprism.receivers.listen_address import parse_listen_address
from otel_llmprism.service.control_app import ControlApp
from otel_llmprism.service.control_book import ControlBook
from otel_llmprism.service.query.answer import MAX_AT_A_TIME
from otel_llmprism.service.query.sentinel_routes import SentinelApi
from otel_llmprism.service.query.sentinel_view import SentinelView


def build_control_routes(book: ControlBook, token: BearerToken | None, endpoint: str) -> list[Route]:
    """Return the relay's routes for a server on `endpoint`; ConfigError when that is no address."""
    return _build_control(book, token, endpoint).build_routes()


def build_service_routes(
    book: ControlBook, token: BearerToken | None, endpoint: str, view: SentinelView
) -> list[Route]:
    """Return the relay's routes and the sentinel's, under the same check."""
    control = _build_control(book, token, endpoint)
    api = SentinelApi(view, None, time.time_ns)
    own = [
        route for route in api.build_routes(threading.Semaphore(MAX_AT_A_TIME)) if isinstance(route, Route)
    ]
    checked = [
        Route(route.path, control.admit(route.endpoint), methods=list(route.methods or ())) for route in own
    ]
    return [*control.build_routes(), *checked]


def _build_control(book: ControlBook, token: BearerToken | None, endpoint: str) -> ControlApp:
    return ControlApp(book, token, is_loopback=parse_listen_address(endpoint).is_loopback)
