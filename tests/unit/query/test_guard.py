# Who may ask: Host, Origin, token; and the headers that keep the page in its bounds.
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import ASGIApp

from otel_llmprism.config.secret import Secret
from otel_llmprism.receivers.auth import BearerToken
from otel_llmprism.service.query.guard import Guard, describe_hosts

Connect = Callable[[ASGIApp], Any]
PATH = "/api/services"


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8317", "localhost", "LOCALHOST:8317", "[::1]:8317", "localhost.:8317"]
)
def test_the_names_of_this_machine_are_welcome(app: ASGIApp, connect: Connect, host: str) -> None:
    assert connect(Guard(app)).get(PATH, host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1:8317",
        "",
        "user@localhost",
        "localhost/x",
        "a:b:c",
        "[::1",
    ],
)
def test_other_hosts_are_refused(app: ASGIApp, connect: Connect, host: str) -> None:
    answer = connect(Guard(app)).get(PATH, host=host)
    assert answer.status == 403
    assert "allowed_hosts" in answer.json["error"]["hint"]


def test_a_wildcard_listener_takes_addresses_and_its_own_names(app: ASGIApp, connect: Connect) -> None:
    guard = Guard(app, **describe_hosts("0.0.0.0", ["prism.example"], ["node-1"]))
    client = connect(guard)
    for host in ("10.0.0.1:8317", "[2001:db8::1]:8317", "prism.example", "node-1:8317"):
        assert client.get(PATH, host=host).status == 200, host
    assert client.get(PATH, host="evil.example").status == 403


def test_a_listener_on_one_address_takes_only_that(app: ASGIApp, connect: Connect) -> None:
    client = connect(Guard(app, **describe_hosts("10.0.0.1", [], ["node-1"])))
    assert client.get(PATH, host="10.0.0.1:8317").status == 200
    assert client.get(PATH, host="10.0.0.2:8317").status == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8317", 200),
        ("http://127.0.0.1:9999", 403),
        ("https://127.0.0.1:8317", 403),
        ("http://localhost:8317", 403),
        ("http://evil.example", 403),
        ("null", 403),
    ],
)
def test_only_the_page_itself_may_ask(app: ASGIApp, connect: Connect, origin: str, status: int) -> None:
    answer = connect(Guard(app)).get(PATH, origin=origin)
    assert answer.status == status
    assert "access-control-allow-origin" not in answer.headers


def test_answers_and_refusals_carry_the_protecting_headers(app: ASGIApp, connect: Connect) -> None:
    client = connect(Guard(app))
    for answer in (client.get(PATH), client.get(PATH, host="evil.example"), client.get("/nothing")):
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_a_token_is_asked_for_and_taken_as_bearer(app: ASGIApp, connect: Connect) -> None:
    client = connect(Guard(app, token=BearerToken(Secret("open-sesame"))))
    answer = client.get(PATH)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert client.get(PATH, authorization="Bearer open-sesame").status == 200
    assert client.get(PATH, authorization="bearer open-sesame").status == 200
    for wrong in ("Bearer wrong", "Basic open-sesame", "open-sesame", "Bearer ", "Bearer öpen"):
        assert client.get(PATH, authorization=wrong).status == 401, wrong


def test_the_token_in_the_address_becomes_a_cookie(app: ASGIApp, connect: Connect) -> None:
    client = connect(Guard(app, token=BearerToken(Secret("open-sesame"))))
    answer = client.get("/", "token=open-sesame")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.get(PATH, cookie=cookie.partition(";")[0]).status == 200
    assert client.get("/", "token=wrong").status == 401
    assert client.get(PATH, "token=open-sesame").status == 401
    assert client.get(PATH, cookie="llmprism_token=wrong").status == 401


def test_a_query_string_has_a_bound(app: ASGIApp, connect: Connect) -> None:
    assert connect(Guard(app)).get(PATH, "a=" + "b" * 40_000).status == 414
