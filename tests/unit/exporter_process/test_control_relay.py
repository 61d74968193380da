# What the exporter does with the processor's requests: each once, settled when its steps are through.
import http.server
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.service.exporter_process.control_relay import (
    POLL_S,
    SLOWEST_POLL_S,
    ControlRelay,
    RunSockets,
    build_relay,
)
from otel_llmprism.service.exporter_process.processor_poll import (
    MAX_STEPS,
    DeepRequest,
    PollError,
    ProcessorPoll,
)
from otel_llmprism.testing.certificates import write_certificates


class FakePoll:
    def __init__(self) -> None:
        self.requests: list[DeepRequest] = []
        self.settled: list[tuple[str, bool]] = []
        self.is_down = False

    def ask(self) -> list[DeepRequest]:
        if self.is_down:
            raise PollError("connection refused")
        return self.requests

    def settle(self, request_id: str, *, is_done: bool) -> None:
        self.settled.append((request_id, is_done))


class FakeEngine:
    def __init__(self) -> None:
        self.dives: list[int] = []
        self.status: list[dict[str, Any]] = [{"schedules": True, "deep_left": 5}, {"deep_left": 9}]

    def ask_all(self, request: Mapping[str, object]) -> list[dict[str, Any]]:
        if request["command"] == "deep-dive":
            self.dives.append(int(str(request["steps"])))
        return self.status


def build(poll: FakePoll, engine: FakeEngine) -> ControlRelay:
    return ControlRelay(poll, engine, draw=lambda _low, _high: 1.0)


def test_a_request_is_relayed_once_and_settled_when_its_steps_are_through() -> None:
    poll, engine = FakePoll(), FakeEngine()
    relay = build(poll, engine)
    poll.requests = [DeepRequest("r1", 5)]
    relay.turn()
    relay.turn()
    assert engine.dives == [5]
    assert poll.settled == []
    engine.status[0]["deep_left"] = 0
    relay.turn()
    relay.turn()
    assert poll.settled == [("r1", True)]


def test_a_request_that_no_process_takes_has_failed() -> None:
    poll, engine = FakePoll(), FakeEngine()
    engine.status = []
    poll.requests = [DeepRequest("r1", 5)]
    build(poll, engine).turn()
    assert poll.settled == [("r1", False)]


def test_a_silent_processor_is_asked_ever_less_often_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    poll = FakePoll()
    relay = build(poll, FakeEngine())
    poll.is_down = True
    waits = [relay.turn() for _ in range(8)]
    assert waits[:3] == [2 * POLL_S, 4 * POLL_S, 8 * POLL_S]
    assert waits[-1] == SLOWEST_POLL_S
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    poll.is_down = False
    assert relay.turn() == POLL_S


def test_no_processor_is_asked_for_without_the_variable(caplog: pytest.LogCaptureFixture) -> None:
    run: Any = type("Run", (), {"engine_id": "e", "run": "00"})
    assert build_relay(run, {}) is None
    assert caplog.records == []
    assert build_relay(run, {"OTEL_LLMPRISM_PROCESSOR": "nonsense"}) is None
    assert "http://HOST:PORT" in caplog.text
    environment = {
        "OTEL_LLMPRISM_PROCESSOR": "http://far.example:13133",
        "OTEL_LLMPRISM_PROCESSOR_TOKEN_FILE": "/t",
    }
    assert build_relay(run, environment) is not None
    assert "unencrypted" in caplog.text


def test_sockets_of_other_runs_and_dead_ones_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "1.sock").write_text("", encoding="utf-8")
    assert RunSockets([tmp_path, tmp_path / "absent"], "00").ask_all({"command": "status"}) == []


@pytest.mark.parametrize(
    "url", ["ftp://h", "h:1", "http://", "http://h:99999", "http://u:p@h", "http://h?x=1"]
)
def test_what_is_no_address_of_a_processor_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        ProcessorPoll(url, "", "e")


class Scripted(http.server.BaseHTTPRequestHandler):
    status, body = 200, b"{}"
    seen: list[tuple[str, str]]

    def do_GET(self) -> None:
        type(self).seen.append((self.path, self.headers.get("Authorization", "")))
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def processor() -> Iterator[tuple[str, type[Scripted]]]:
    handler = type("Handler", (Scripted,), {"seen": []})
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/base", handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_engine_and_the_token_of_now_are_sent(
    processor: tuple[str, type[Scripted]], tmp_path: Path
) -> None:
    url, handler = processor
    token = tmp_path / "token"
    token.write_text("one\n", encoding="ascii")
    poll = ProcessorPoll(url, str(token), "a/dp0")
    assert poll.ask() == []
    token.write_text("two\n", encoding="ascii")
    poll.ask()
    target = "/base/v1/control/requests?engine=a%2Fdp0"
    assert handler.seen == [(target, "Bearer one"), (target, "Bearer two")]


def test_over_https_the_processor_must_prove_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_certificates(tmp_path)
    handler = type("Handler", (Scripted,), {"seen": []})
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server_cert, files.server_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"https://127.0.0.1:{server.server_port}"
        with pytest.raises(PollError, match="CERTIFICATE_VERIFY_FAILED"):
            ProcessorPoll(url, "", "e").ask()
        monkeypatch.setenv("SSL_CERT_FILE", files.ca)
        assert ProcessorPoll(url, "", "e").ask() == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert len(vars(handler)["seen"]) == 1


def test_absurd_requests_of_a_processor_are_passed_over(processor: tuple[str, type[Scripted]]) -> None:
    url, handler = processor
    entries = [
        7,
        {"id": 3, "steps": 5},
        {"id": "x" * 99, "steps": 5},
        {"id": "a", "steps": MAX_STEPS + 1},
        {"id": "a", "steps": True},
        {"id": "good", "steps": 5, "further": {}},
    ]
    handler.body = json.dumps({"requests": entries}).encode()
    assert ProcessorPoll(url, "", "e").ask() == [DeepRequest("good", 5)]


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [(401, b"", "TOKEN_FILE"), (404, b"", "health address"), (302, b"", "302"), (200, b"<html>", "no JSON")],
)
def test_a_wrong_answer_says_how_to_mend_it(
    processor: tuple[str, type[Scripted]], status: int, body: bytes, says: str
) -> None:
    url, handler = processor
    handler.status, handler.body = status, body
    with pytest.raises(PollError, match=says):
        ProcessorPoll(url, "", "e").ask()
    assert len(handler.seen) == 1, "no redirect is followed"
