# The relay's HTTP places over a real socket: who may ask, and what is answered to anything else.
import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from otel_llmprism.config.secret import Secret
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.auth import BearerToken
from otel_llmprism.service.control_app import MAX_BODY_BYTES, PATH, ControlApp
from otel_llmprism.service.control_book import ControlBook, ControlConfig
from otel_llmprism.service.health import HealthConfig, HealthServer

JSON = {"Content-Type": "application/json"}


class Relay:
    def __init__(self, token: str, *, is_loopback: bool) -> None:
        counters = Counters()
        book = ControlBook(ControlConfig(), counters)
        bearer = BearerToken(Secret(token)) if token else None
        routes = ControlApp(book, bearer, is_loopback=is_loopback).build_routes()
        self.server = HealthServer(HealthConfig(endpoint="127.0.0.1:0"), counters, str, routes)
        self.server.start()

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        try:
            connection.request(method, path, raw, JSON | (headers or {}))
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text else {}

    def stop(self) -> None:
        self.server.stop(time.monotonic_ns() + 5_000_000_000)


@pytest.fixture
def open_relay() -> Iterator[Relay]:
    relay = Relay("", is_loopback=True)
    yield relay
    relay.stop()


@pytest.fixture
def guarded_relay() -> Iterator[Relay]:
    relay = Relay("s3cret", is_loopback=False)
    yield relay
    relay.stop()


def test_a_request_goes_from_who_files_it_to_the_engine_that_polls(open_relay: Relay) -> None:
    status, filed = open_relay.ask("POST", PATH, {"engine": "vllm-1/dp0", "steps": 5})
    assert (status, filed["state"]) == (202, "waiting")
    status, polled = open_relay.ask("GET", PATH + "?engine=vllm-1/dp0&run=00")
    assert status == 200
    (granted,) = polled["requests"]
    assert granted == {"id": filed["id"], "engine": "vllm-1/dp0", "steps": 5, "state": "granted"}
    assert open_relay.ask("GET", PATH + "?engine=other")[1]["requests"] == []
    place = f"{PATH}/{filed['id']}"
    assert open_relay.ask("GET", place)[1]["state"] == "granted"
    assert open_relay.ask("POST", place, {"outcome": "done"}) == (204, {})
    assert open_relay.ask("GET", place)[1]["state"] == "done"
    assert open_relay.ask("POST", place, {"outcome": "done"})[0] == 404
    assert open_relay.ask("POST", PATH, {"engine": "vllm-1/dp0"})[0] == 429, "it rests"


def test_without_the_token_nothing_is_told_or_taken(guarded_relay: Relay) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
        assert guarded_relay.ask("GET", PATH + "?engine=e", headers=headers)[0] == 401
        assert guarded_relay.ask("POST", PATH, {"engine": "e"}, headers)[0] == 401
    token = {"Authorization": "Bearer s3cret", "Host": "processor.svc:13133"}
    assert guarded_relay.ask("POST", PATH, {"engine": "e"}, token)[0] == 202


def test_a_listener_that_others_reach_refuses_without_a_token() -> None:
    relay = Relay("", is_loopback=False)
    try:
        status, answer = relay.ask("GET", PATH + "?engine=e")
        assert status == 403
        assert "token_file" in answer["error"]["message"]
    finally:
        relay.stop()


@pytest.mark.parametrize("headers", [{"Host": "evil.example:80"}, {"Origin": "http://evil.example"}])
def test_another_sites_page_is_refused_on_loopback(open_relay: Relay, headers: dict[str, str]) -> None:
    assert open_relay.ask("POST", PATH, {"engine": "e"}, headers)[0] == 403


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[1]", b"\xff", b"[" * 4000),
        *({"engine": 3}, {"engine": "e", "steps": "5"}, {"steps": 5}, {"engine": "e", "steps": 10**6}),
        *({"engine": ""}, {"engine": "e", "steps": True}),
    ],
)
def test_what_is_no_request_is_refused(open_relay: Relay, body: object) -> None:
    assert open_relay.ask("POST", PATH, body)[0] == 400


def test_a_body_is_bounded_and_must_be_json(open_relay: Relay) -> None:
    assert open_relay.ask("POST", PATH, b" " * (MAX_BODY_BYTES + 1))[0] == 400
    assert open_relay.ask("POST", PATH, {"engine": "e"}, {"Content-Type": "text/plain"})[0] == 400
    assert open_relay.ask("POST", PATH + "/ab", {"outcome": "well"})[0] == 400
