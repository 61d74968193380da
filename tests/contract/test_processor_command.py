# `otel-llmprism processor` as a real child process: signals, kill -9 under load, bad use.
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig
from otel_llmprism.exporters.otlp_client_result import SendStatus
from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.otlp_server import OtlpServer, Stall

PROGRAM = [sys.executable, "-m", "otel_llmprism"]
START_TIMEOUT_S = 60


class Child:
    """A running processor; its log lines can be waited for."""

    def __init__(self, config: Path) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, "processor", "--config", str(config)], stderr=subprocess.PIPE, text=True
        )
        self.lines: SimpleQueue[str] = SimpleQueue()
        self.seen: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            line = self.lines.get(timeout=max(0.1, deadline - time.monotonic()))
            self.seen.append(line)
            match = re.search(pattern, line)
            if match is not None:
                return match

    def wait_until_ready(self) -> str:
        return "127.0.0.1:" + self.wait_for_line(r"ready: .*otlp_grpc=(\d+)")[1]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        status = self.process.wait(60)
        self._reader.join()
        while not self.lines.empty():
            self.seen.append(self.lines.get())
        return status

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self.lines.put(line)


@pytest.fixture
def backend() -> Iterator[OtlpServer]:
    with OtlpServer() as server:
        yield server


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        if child.process.poll() is None:
            child.end(signal.SIGKILL)


def write_config(tmp_path: Path, endpoint: str, **sections: object) -> Path:
    path = tmp_path / "processor.yaml"
    anywhere = {"endpoint": "127.0.0.1:0"}
    config = {
        "receivers": {"otlp": {"protocols": {"grpc": anywhere}}},
        "exporters": {
            "otlp": {"endpoint": endpoint, "retry": {"initial_interval": "10ms", "max_interval": "50ms"}}
        },
        "log": {"directory": str(tmp_path / "log")},
        "health": anywhere,
        **sections,
    }
    path.write_text(yaml.safe_dump(config))
    return path


def build_request(name: str) -> bytes:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name=name)
    span.span_id, span.trace_id = b"s" * 8, b"t" * 16
    return request.SerializeToString()


def read_names(server: OtlpServer) -> set[str]:
    return {
        ExportTraceServiceRequest.FromString(r.payload).resource_spans[0].scope_spans[0].spans[0].name
        for r in server.received()
    }


def send_until_refused(endpoint: str, accepted: list[str], first: int) -> None:
    """Send one request after the other and note what was acknowledged, until the processor is gone."""
    client = OtlpClient(OtlpClientConfig(endpoint=endpoint))
    number = first
    while client.send(Signal.TRACES, build_request(str(number)), 5).status is SendStatus.DELIVERED:
        accepted.append(str(number))
        number += 1
    client.close()


@pytest.mark.parametrize("durability", ["process", "host"])
def test_everything_acknowledged_survives_kill(
    tmp_path: Path, backend: OtlpServer, children: list[Child], durability: str
) -> None:
    config = write_config(tmp_path, backend.grpc_endpoint, durability=durability)
    accepted: list[str] = []
    for attempt in range(2):
        child = Child(config)
        children.append(child)
        endpoint = child.wait_until_ready()
        before = len(accepted)
        sender = threading.Thread(target=send_until_refused, args=(endpoint, accepted, 100_000 * attempt))
        sender.start()
        while len(accepted) < before + 50:
            assert sender.is_alive(), child.seen
            time.sleep(0.001)
        child.end(signal.SIGKILL)
        sender.join()
    last = Child(config)
    children.append(last)
    last.wait_until_ready()
    deadline = time.monotonic() + 60
    while not set(accepted) <= read_names(backend):
        assert time.monotonic() < deadline, f"{len(set(accepted) - read_names(backend))} requests are missing"
        time.sleep(0.05)
    assert last.end(signal.SIGTERM) == 0
    assert len(accepted) >= 100


def test_sigterm_drains_and_says_that_nothing_is_left(
    tmp_path: Path, backend: OtlpServer, children: list[Child]
) -> None:
    child = Child(write_config(tmp_path, backend.grpc_endpoint))
    children.append(child)
    client = OtlpClient(OtlpClientConfig(endpoint=child.wait_until_ready()))
    for number in range(20):
        assert client.send(Signal.TRACES, build_request(str(number))).status is SendStatus.DELIVERED
    assert child.end(signal.SIGTERM) == 0
    client.close()
    assert read_names(backend) == {str(number) for number in range(20)}
    assert 'msg="stopped: nothing left"' in child.seen[-1]


def test_sigterm_with_a_silent_backend_ends_in_time_and_says_what_is_left(
    tmp_path: Path, backend: OtlpServer, children: list[Child]
) -> None:
    backend.follow(then=Stall())
    child = Child(write_config(tmp_path, backend.grpc_endpoint, shutdown_timeout="2s"))
    children.append(child)
    client = OtlpClient(OtlpClientConfig(endpoint=child.wait_until_ready()))
    client.send(Signal.TRACES, build_request("left"))
    client.close()
    backend.wait_until_asked(1)
    assert child.end(signal.SIGTERM) == 0
    assert re.search(r"stopped: \d+ bytes wait in the log .* for the next start", child.seen[-1])


def test_sighup_applies_a_good_file_and_refuses_a_bad_one(
    tmp_path: Path, backend: OtlpServer, children: list[Child]
) -> None:
    config = write_config(tmp_path, backend.grpc_endpoint)
    child = Child(config)
    children.append(child)
    endpoint = child.wait_until_ready()
    config.write_text("exporters: {otlp: {endpont: 'x:1', headers: {authorization: canary}}}")
    child.process.send_signal(signal.SIGHUP)
    line = child.wait_for_line("refused").string
    assert "did you mean 'endpoint'?" in line
    assert "canary" not in line
    client = OtlpClient(OtlpClientConfig(endpoint=endpoint))
    assert client.send(Signal.TRACES, build_request("old")).status is SendStatus.DELIVERED
    backend.wait_for(1)
    with OtlpServer() as other:
        write_config(tmp_path, other.http_endpoint)
        child.process.send_signal(signal.SIGHUP)
        child.wait_for_line("configuration reloaded")
        assert client.send(Signal.TRACES, build_request("new")).status is SendStatus.DELIVERED
        other.wait_for(1)
        client.close()
        assert child.end(signal.SIGTERM) == 0
        assert read_names(other) == {"new"}


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_port_in_use_is_one_line_and_a_failed_run(tmp_path: Path, backend: OtlpServer) -> None:
    taken = {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{backend.http_port}"}}}}
    result = run_program(
        "processor", "--config", str(write_config(tmp_path, backend.grpc_endpoint, receivers=taken))
    )
    assert result.returncode == 1
    assert "choose another port" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_log_folder_that_is_a_file_is_one_line_and_a_failed_run(tmp_path: Path, backend: OtlpServer) -> None:
    (tmp_path / "log").write_text("in the way")
    result = run_program("processor", "--config", str(write_config(tmp_path, backend.grpc_endpoint)))
    assert result.returncode == 1
    assert "set another log directory" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["processor"], "one of the arguments --config --print-schema is required"),
        (["processor", "--config", "/does/not/exist"], "cannot read /does/not/exist: No such file"),
        (["proccesor"], "did you mean 'processor'?"),
        ([], "no command given"),
    ],
)
def test_bad_use_is_one_line_with_status_2(arguments: list[str], message: str) -> None:
    result = run_program(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_print_config_hides_secrets(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("exporters: {otlp: {endpoint: 'b:1', headers: {authorization: canary}}}")
    result = run_program("processor", "--config", str(path), "--print-config")
    assert result.returncode == 0
    assert "canary" not in result.stdout + result.stderr
    assert yaml.safe_load(result.stdout)["service"]["shutdown_timeout"] == "10s"


def test_help_is_quick_to_import_and_shows_an_example() -> None:
    code = (
        "import sys; from otel_llmprism.cli.main import main\n"
        "try: main(['processor', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'grpc', 'numpy', 'uvicorn', 'yaml'} & set(sys.modules), 'heavy imports'"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "otel-llmprism processor --config processor.yaml" in result.stdout


def test_program_survives_a_closed_output() -> None:
    """`otel-llmprism --help | head -0`: the reader is gone before we write."""
    reading, writing = os.pipe()
    os.close(reading)
    with socket.socket():  # any descriptor; keeps the number of the pipe from being reused
        result = subprocess.run(
            [*PROGRAM, "processor", "--print-schema"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    os.close(writing)
    assert "Traceback" not in result.stderr
