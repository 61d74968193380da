# What is left of an engine that is killed under load: nothing that runs, and everything it had recorded.
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.otlp_server import OtlpServer
from otel_llmprism.testing.programs import Programs, wait_until


@pytest.fixture
def backend() -> Iterator[OtlpServer]:
    with OtlpServer() as server:
        yield server


def test_engine_that_is_killed_leaves_no_process_and_its_requests_arrive(
    programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    """The exporter process outlives the engine only until it has shipped what is in the ring."""
    environment = {
        "OTEL_LLMPRISM_MODE": "sentinel",
        "OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "rings"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": backend.grpc_endpoint.replace("grpc", "http"),
    }
    command = [sys.executable, "-m", "otel_llmprism.testing.mini_engine", "--seconds", "60", "--rate", "30"]
    engine = programs.start("engine", command, environment)
    backend.wait_until_asked(6)
    engine.kill()
    wait_until(lambda: not list_session(engine.pid), "processes of the killed engine are left", 30)
    assert backend.received(Signal.LOGS), "the ledger"


def list_session(session: int) -> list[int]:
    """Return the living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found
