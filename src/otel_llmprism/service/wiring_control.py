# The deep-dive relay as our services offer it: beside the health pages, with their address.
from starlette.routing import Route

from otel_llmprism.receivers.auth import BearerToken
from otel_llmprism.receivers.listen_address import parse_listen_address
from otel_llmprism.service.control_app import ControlApp
from otel_llmprism.service.control_book import ControlBook


def build_control_routes(book: ControlBook, token: BearerToken | None, endpoint: str) -> list[Route]:
    """Return the relay's routes for a server on `endpoint`; ConfigError when that is no address."""
    return ControlApp(book, token, is_loopback=parse_listen_address(endpoint).is_loopback).build_routes()
