# `otel-llmprism up` as its users meet it: a process, the Python SDK, the query API, signals, ports.
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig
from otel_llmprism.exporters.otlp_client_result import SendStatus
from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.otlp_server import OtlpServer

START_S = 30
API = "api/llmprism/v1"


class Up:
    """One running `otel-llmprism up`."""

    def __init__(self, data: Path, *more: str, **environment: str) -> None:
        words = [sys.executable, "-m", "otel_llmprism", "up", "--data", str(data)]
        for flag in ("--otlp-grpc", "--otlp-http", "--ui"):
            words += [flag, "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*words, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.said: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())
            if line.strip() == "ready":
                return
        pytest.fail(f"up ended: {self.process.communicate()[1]}")

    def find(self, name: str) -> str:
        return next(line.split()[-1] for line in self.said if line.startswith(name))

    def ask(self, path: str, **headers: str) -> Any:
        request = urllib.request.Request(self.find("page and API") + path, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def wait_for(self, path: str, is_met: Callable[[Any], bool]) -> Any:
        give_up_at = time.monotonic() + START_S
        while not is_met(answer := self.ask(path)):
            assert time.monotonic() < give_up_at, f"{path} stayed {answer}"
            time.sleep(0.02)
        return answer

    def stop(self, how: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(how)
        _, errors = self.process.communicate(timeout=START_S)
        return self.process.returncode, errors


@pytest.fixture
def start_up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    running: list[Up] = []

    def start(*more: str, **environment: str) -> Up:
        running.append(Up(tmp_path / "data", *more, **environment))
        return running[-1]

    yield start
    for up in running:
        if up.process.poll() is None:
            up.process.kill()
            up.process.communicate()


def send_traces(exporter: SpanExporter, count: int) -> None:
    """A request and the step that links to it, `count` times, by the SDK."""
    provider = TracerProvider(resource=Resource.create({"service.name": "sdk"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("test", "0.1")
    for number in range(count):
        with tracer.start_as_current_span("llmprism.request", kind=trace.SpanKind.SERVER) as request:
            request.set_attribute("llmprism.request.id", f"r{number}")
            with tracer.start_as_current_span("llmprism.request.decode") as decode:
                decode.add_event("token", {"number": number})
        link = trace.Link(request.get_span_context(), {"llmprism.request.tokens": number})
        tracer.start_span("llmprism.step", context=trace.Context(), links=[link]).end()  # type: ignore[attr-defined]
    provider.shutdown()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_what_the_sdk_sends_is_found_and_followed(start_up: Callable[..., Up], protocol: str) -> None:
    up = start_up()
    exporter: SpanExporter
    if protocol == "grpc":
        exporter = GrpcSpanExporter(up.find("OTLP gRPC"), insecure=True)
    else:
        exporter = HttpSpanExporter(up.find("OTLP HTTP") + "/v1/traces")
    send_traces(exporter, 3)
    up.wait_for(f"{API}/live", lambda live: live["storedSpans"] == 9)
    assert up.ask("api/services")["data"] == ["sdk"]
    found = up.ask(f"{API}/traces?tag=llmprism.request.id:r1")["traces"]
    (request_id,) = [one["traceId"] for one in found]
    (request,) = [span for span in up.ask(f"{API}/traces/{request_id}")["spans"] if span["kind"] == "server"]
    assert request["attributes"]["llmprism.request.id"] == "r1"
    (back,) = up.ask(f"{API}/spans/{request_id}/{request['spanId']}/back-links")["links"]
    assert (back["name"], back["attributes"]) == ("llmprism.step", {"llmprism.request.tokens": 1})
    (step,) = up.ask(f"{API}/traces/{back['traceId']}")["spans"]
    assert step["links"][0]["target"]["name"] == "llmprism.request"
    jaeger = up.ask(f"api/traces/{back['traceId']}")["data"][0]
    assert jaeger["spans"][0]["references"][0]["refType"] == "FOLLOWS_FROM"
    assert up.stop()[0] == 0


def test_what_was_stored_is_there_after_a_restart(start_up: Callable[..., Up]) -> None:
    up = start_up()
    send_traces(GrpcSpanExporter(up.find("OTLP gRPC"), insecure=True), 2)
    code, errors = up.stop()
    assert code == 0
    assert "everything is stored" in errors
    again = start_up()
    assert again.ask(f"{API}/live")["storedSpans"] == 6


def build_request(number: int) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: PLC0415 - one test needs it
        ExportTraceServiceRequest,
    )

    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for index in range(1, 11):
        spans.add(trace_id=number.to_bytes(16, "big"), span_id=index.to_bytes(8, "big"), name="work")
    return request.SerializeToString()


def test_after_kill_9_every_acknowledged_span_is_there_once(start_up: Callable[..., Up]) -> None:
    up = start_up()
    client = OtlpClient(OtlpClientConfig(endpoint=f"grpc://{up.find('OTLP gRPC')}", timeout_s=2))
    acknowledged: list[int] = []

    def send_on() -> None:
        for number in range(1, 100_000):
            if client.send(Signal.TRACES, build_request(number), 2.0).status is not SendStatus.DELIVERED:
                return
            acknowledged.append(number)

    sender = threading.Thread(target=send_on)
    sender.start()
    up.wait_for(f"{API}/live", lambda live: live["storedSpans"] > 100)
    up.stop(signal.SIGKILL)
    sender.join()
    client.close()
    again = start_up()
    again.wait_for(f"{API}/live", lambda live: live["storedSpans"] >= 10 * len(acknowledged))
    for number in (1, acknowledged[len(acknowledged) // 2], acknowledged[-1]):
        assert len(again.ask(f"{API}/traces/{number:032x}")["spans"]) == 10


@pytest.mark.parametrize("is_ignored", [False, True], ids=["terminal closed", "under nohup"])
def test_closed_terminal_ends_it_unless_started_to_outlive_one(
    start_up: Callable[..., Up], is_ignored: bool
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        up = start_up()
    finally:
        signal.signal(signal.SIGHUP, before)
    if is_ignored:
        up.process.send_signal(signal.SIGHUP)
        assert up.ask(f"{API}/live")["storedSpans"] == 0
    status, _ = up.stop(signal.SIGTERM if is_ignored else signal.SIGHUP)
    assert status == 0


def test_missing_native_library_is_said_at_the_start(start_up: Callable[..., Up]) -> None:
    assert "native library not loaded" in start_up(OTEL_LLMPRISM_NATIVE="off").stop()[1]


def test_everything_is_sent_on_as_well(start_up: Callable[..., Up]) -> None:
    with OtlpServer() as backend:
        up = start_up("--export", backend.http_endpoint)
        send_traces(GrpcSpanExporter(up.find("OTLP gRPC"), insecure=True), 2)
        backend.wait_for(1)
        up.wait_for(f"{API}/live", lambda live: live["storedSpans"] == 6)
        assert up.stop()[0] == 0
        assert (
            sum(received.payload.count(b"llmprism.step") for received in backend.received(Signal.TRACES)) == 2
        )


def test_the_store_goes_on_while_the_further_backend_is_down(start_up: Callable[..., Up]) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, but not listening: refuses
        up = start_up("--export", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        client = OtlpClient(OtlpClientConfig(endpoint=f"grpc://{up.find('OTLP gRPC')}"))
        for number in range(1, 51):
            assert client.send(Signal.TRACES, build_request(number), 5.0).status is SendStatus.DELIVERED
        client.close()
        up.wait_for(f"{API}/live", lambda live: live["storedSpans"] == 500)


@pytest.mark.parametrize("flag", ["--otlp-grpc", "--otlp-http", "--ui"])
def test_a_port_in_use_names_the_flag(tmp_path: Path, flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free = {"--otlp-grpc": "127.0.0.1:0", "--otlp-http": "127.0.0.1:0", "--ui": "127.0.0.1:0"}
        words = [word for pair in {**free, flag: f"127.0.0.1:{port}"}.items() for word in pair]
        done = subprocess.run(
            [sys.executable, "-m", "otel_llmprism", "up", "--data", str(tmp_path / "data"), *words],
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("otel-llmprism: error:")]
    assert re.search(rf"cannot listen on 127.0.0.1:{port}: .*{flag} HOST:PORT", line), line


def test_a_folder_in_use_is_refused(start_up: Callable[..., Up], tmp_path: Path) -> None:
    up = start_up()
    words = ["--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--ui", "127.0.0.1:0"]
    done = subprocess.run(
        [sys.executable, "-m", "otel_llmprism", "up", "--data", str(tmp_path / "data"), *words],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 1
    assert f"in use by process {up.process.pid}" in done.stderr
    assert "Traceback" not in done.stderr


def test_other_sites_and_strangers_are_refused(start_up: Callable[..., Up]) -> None:
    up = start_up(OTEL_LLMPRISM_UI_TOKEN="open-sesame")
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer open-sesame", "Host": "evil.example"}, 403),
        ({"Authorization": "Bearer open-sesame", "Origin": "http://evil.example"}, 403),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            up.ask("api/services", **headers)
        assert refused.value.code == status
        refused.value.close()
    assert up.ask("api/services", Authorization="Bearer open-sesame")["data"] == []
    assert "open-sesame" not in "".join(up.said) + up.stop()[1]


def test_engines_may_come_for_their_deep_dives(start_up: Callable[..., Up]) -> None:
    assert start_up().ask("v1/control/requests?engine=e") == {"version": 1, "requests": []}


def test_print_config_shows_what_would_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "otel_llmprism", "up", "--data", str(tmp_path), "--print-config"],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 0
    assert "endpoint: 127.0.0.1:8317" in done.stdout
    assert f"directory: {tmp_path}/log" in done.stdout
