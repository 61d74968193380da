# The mini engine as a real program against a fake backend: what it was told to do, its own book, and
# everything that its exporter process sent.
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.otlp_server import OtlpServer

MODULE = "otel_llmprism.testing.mini_engine"


@dataclass(frozen=True)
class EngineCase:
    """One run, from start to the end of its exporter."""

    server: OtlpServer
    folder: Path  # holds book.jsonl, engine.log and, while it runs, the run folder
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / "engine.log").read_text(encoding="utf-8")

    @property
    def summary(self) -> dict[str, Any]:
        lines = [line for line in self.log.splitlines() if line.startswith("{")]
        return dict(json.loads(lines[-1]))

    def wait_for_end(self) -> None:
        """Wait for the engine and for its exporter, which outlives it a little."""
        assert self.process.wait(timeout=120) == 0, self.log
        self.wait_for_exporter(self.summary["exporter_pid"])

    def wait_for_exporter(self, pid: int) -> None:
        deadline = time.monotonic() + 30
        while is_alive(pid):
            assert time.monotonic() < deadline, f"exporter {pid} does not end: {self.log}"
            time.sleep(0.02)

    def find_run_folder(self) -> Path:
        """Return the run's folder once it is there."""
        deadline = time.monotonic() + 30
        while not (found := list((self.folder / "runtime").glob("*/run.json"))):
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)
        return found[0].parent

    def read_book(self) -> list[dict[str, Any]]:
        lines = (self.folder / "book.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def list_spans(self, name: str) -> list[Span]:
        payloads = [received.payload for received in self.server.received(Signal.TRACES)]
        requests = [ExportTraceServiceRequest.FromString(payload) for payload in payloads]
        scopes = [scope for r in requests for rs in r.resource_spans for scope in rs.scope_spans]
        return [span for scope in scopes for span in scope.spans if span.name == name]

    def list_log_records(self, event: str) -> list[LogRecord]:
        payloads = [received.payload for received in self.server.received(Signal.LOGS)]
        requests = [ExportLogsServiceRequest.FromString(payload) for payload in payloads]
        scopes = [scope for r in requests for rl in r.resource_logs for scope in rl.scope_logs]
        assert {scope.scope.name for scope in scopes} <= {"otel_llmprism.ledger"}
        return [record for scope in scopes for record in scope.log_records if record.event_name == event]

    def list_metrics(self) -> dict[str, Metric]:
        """Return the last reading of each metric."""
        payloads = [received.payload for received in self.server.received(Signal.METRICS)]
        requests = [ExportMetricsServiceRequest.FromString(payload) for payload in payloads]
        scopes = [scope for r in requests for rm in r.resource_metrics for scope in rm.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended but was not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


StartEngine = Callable[..., EngineCase]


@pytest.fixture
def backend() -> Iterator[OtlpServer]:
    with OtlpServer() as server:
        yield server


@pytest.fixture
def start_engine(tmp_path: Path, backend: OtlpServer) -> Iterator[StartEngine]:
    """Return a function that starts the engine with arguments and environment; all is ended after."""
    cases: list[EngineCase] = []

    def start(*arguments: str, **environment: str) -> EngineCase:
        is_grpc = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc"
        grpc_endpoint = f"http://127.0.0.1:{backend.grpc_port}"
        variables = {
            "PATH": os.environ["PATH"],
            "OTEL_EXPORTER_OTLP_ENDPOINT": grpc_endpoint if is_grpc else backend.http_endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "runtime"),
            "OTEL_LLMPRISM_LEDGER_DIR": str(tmp_path / "ledger"),
            **environment,
        }
        command = [sys.executable, "-m", MODULE, "--log-tokens", str(tmp_path / "book.jsonl"), *arguments]
        with (tmp_path / "engine.log").open("wb") as log:
            process = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
        cases.append(EngineCase(backend, tmp_path, process))
        return cases[-1]

    yield start
    for case in cases:
        if case.process.poll() is None:
            case.process.kill()
        case.process.wait()
