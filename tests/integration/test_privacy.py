# Canary prompts through the whole skeleton with everything switched on: they are in no ring, ledger, log,
# store, page, answer or request of ours.
import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.otlp_server import OtlpServer
from otel_llmprism.testing.programs import Program, Programs, find_free_port, wait_until

CANARY = "canary-prompt-8f14e45f"
CONTROL = "req-1"  # is recorded, so that a search which finds nothing anywhere fails
REQUESTS = 200


@pytest.fixture
def backend() -> Iterator[OtlpServer]:
    with OtlpServer() as server:
        yield server


def test_prompts_are_nowhere(programs: Programs, backend: OtlpServer, tmp_path: Path) -> None:
    ui = f"http://127.0.0.1:{(ui_port := find_free_port())}"
    grpc_port = find_free_port()
    command = [sys.executable, "-m", "otel_llmprism", "up", "-v", "--data", str(tmp_path / "data")]
    command += ["--otlp-grpc", f"127.0.0.1:{grpc_port}", "--otlp-http", "127.0.0.1:0"]
    command += ["--ui", f"127.0.0.1:{ui_port}", "--export", backend.http_endpoint]
    up = programs.start("up", command).await_port(ui_port)
    engine = start_engine(programs, tmp_path, grpc_port)
    rings = copy_rings(tmp_path / "runtime")
    assert engine.wait(120) == 0
    # The step traces of the last request come last; all of them make the search below a full one.
    wait_until(lambda: count_requests(ui) == REQUESTS, "not all requests are in the store")
    answers = list(ask_everything(ui))
    assert up.stop() == 0
    check_absent("ring", rings)
    check_absent("answers of page and API", b"\n".join(answers))
    check_absent("requests sent on", b"\n".join(one.payload for one in backend.received()))
    assert {one.signal for one in backend.received()} >= {Signal.TRACES, Signal.METRICS}
    logs = b"\n".join(program.log.read_bytes() for program in programs.started)
    assert CANARY.encode() not in logs
    for folder in ("data", "ledger"):
        files = [path for path in (tmp_path / folder).rglob("*") if path.is_file()]
        assert files, f"{folder} is empty: nothing was tested"
        assert not [path for path in files if CANARY.encode() in path.read_bytes()]
        assert not [path for path in files if path.stat().st_mode & 0o077], "spools and stores are 0600"


def start_engine(programs: Programs, folder: Path, grpc_port: int) -> Program:
    command = [sys.executable, "-m", "otel_llmprism.testing.mini_engine", "--requests", str(REQUESTS)]
    command += ["--rate", "60", "--cancel", "0.1", "--ranks", "2", "--canary-prompt", CANARY]
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{grpc_port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_LLMPRISM_MODE": "deep",
        "OTEL_LLMPRISM_STEPS": "all",
        "OTEL_LLMPRISM_RUNTIME_DIR": str(folder / "runtime"),
        "OTEL_LLMPRISM_LEDGER_DIR": str(folder / "ledger"),
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
    }
    return programs.start("engine", command, environment)


def copy_rings(folder: Path) -> bytes:
    """Return what the shared memory holds once requests went through it."""

    def read_with_requests() -> bytes:
        content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        return content if CONTROL.encode() in content else b""

    return wait_until(read_with_requests, "no request in the rings")


def count_requests(ui: str) -> int:
    answer = json.loads(ask(f"{ui}/api/traces?service=mini&operation=llmprism.request&limit=1000"))
    spans = [span for trace in answer["data"] for span in trace["spans"]]
    return sum(span["operationName"] == "llmprism.request" for span in spans)


def ask_everything(ui: str) -> Iterator[bytes]:
    """Yield every trace in the store through both APIs, the live numbers, and the pages."""
    for path in ("/", "/live", "/api/services", "/api/operations?service=mini"):
        yield ask(ui + path)
    yield ask(f"{ui}/api/dependencies?endTs={time.time_ns() // 1_000_000}")
    for path in ("", "/services", "/events", "/live", "/metrics", "/traces"):
        yield ask(f"{ui}/api/llmprism/v1{path}")
    for service in json.loads(ask(f"{ui}/api/services"))["data"]:
        found = ask(f"{ui}/api/traces?service={service}&limit=1000")
        yield found
        for trace in json.loads(found)["data"][:20]:
            yield ask(f"{ui}/trace/{trace['traceID']}")
            yield ask(f"{ui}/api/llmprism/v1/traces/{trace['traceID']}")


def ask(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        content: bytes = answer.read()
    return content


def check_absent(place: str, content: bytes) -> None:
    assert CONTROL.encode() in content, f"{place}: nothing was tested"
    assert CANARY.encode() not in content, f"{place} holds a prompt"
