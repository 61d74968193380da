# Who may ask: checks Host (against DNS rebinding), Origin (against other sites' scripts) and the token;
# adds the headers that keep a page in its bounds. Wraps any ASGI application.
import ipaddress
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from otel_llmprism.receivers.auth import BearerToken

COOKIE = "llmprism_token"
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_QUERY = 32 << 10
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """`hosts` are names that a Host header may carry; with `any_address` every IP address may as well."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str] = (),
        any_address: bool = False,
        token: BearerToken | None = None,
    ) -> None:
        self._app = app
        self._hosts = LOOPBACK_HOSTS | {host.lower().strip("[]") for host in hosts}
        self._any_address = any_address
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no websockets here, and no lifespan
        refusal = self._refuse(scope)
        app = self._app if refusal is None else refusal
        await app(scope, receive, _add_headers(send))

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._is_known(host):
            return _say(
                403,
                "this Host is not ours",
                "open the page by its address, or add the name to ui.allowed_hosts",
            )
        origin = headers.get("origin")
        if origin is not None and not _is_same_origin(origin, scope["scheme"], host):
            return _say(403, "requests from other sites are refused", "open the page itself")
        if len(scope["query_string"]) > MAX_QUERY:
            return _say(414, "the query string is too long", f"send at most {MAX_QUERY} bytes")
        return self._check_token(scope, headers)

    def _check_token(self, scope: Scope, headers: Headers) -> Response | None:
        if self._token is None:
            return None
        sent = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and sent and self._is_token(sent):
            redirect = RedirectResponse("/", 303)  # the token leaves the address bar and the history
            is_tls = scope["scheme"] == "https"
            redirect.set_cookie(COOKIE, sent, httponly=True, samesite="strict", secure=is_tls)
            return redirect
        if self._is_token(_read_bearer(headers)) or self._is_token(_read_cookie(headers)):
            return None
        answer = _say(401, "a token is needed", "open /?token=... once, or send Authorization: Bearer ...")
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    def _is_token(self, sent: str) -> bool:
        assert self._token is not None
        return self._token.allows(b"Bearer " + sent.encode())

    def _is_known(self, host: str) -> bool:
        name = _read_host_name(host)
        if name is None:
            return False
        return name in self._hosts or (self._any_address and _is_address(name))


def _read_host_name(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for what is no port
    except ValueError:
        return None
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        return None
    return parts.hostname.rstrip(".") if parts.hostname else None


def _is_address(name: str) -> bool:
    # An address needs no name service, so nobody can rebind it.
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same_origin(origin: str, scheme: str, host: str) -> bool:
    return origin.lower() == f"{scheme}://{host}".lower()


def _read_bearer(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _read_cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _say(status: int, message: str, hint: str) -> Response:
    return JSONResponse({"error": {"status": status, "message": message, "hint": hint}}, status)


def _add_headers(send: Send) -> Send:
    async def send_guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_guarded


def describe_hosts(host: str, allowed: Iterable[str], own_names: Iterable[str]) -> dict[str, Any]:
    """Return Guard's host arguments for a server that listens on `host`."""
    is_wildcard = host in {"0.0.0.0", "::", ""}  # noqa: S104 - compared with, not listened on
    hosts = [*allowed, *(own_names if is_wildcard else [host])]
    return {"hosts": hosts, "any_address": is_wildcard}
