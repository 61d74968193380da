# Faults around a real processor and a real engine: a backend that is slow, resets or rejects for ever, a
# full disk, a read-only folder, a full /dev/shm. Each is a clear error or a counted drop, never a crash.
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.dead_letters import read_dead_letters
from otel_llmprism.testing.otlp_server import OtlpServer, Refuse, Reset, Stall
from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Programs, wait_until

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SHUTDOWN_S = 3.0
STOP_MARGIN_S = 10.0  # interpreters start and end slowly on a loaded machine
REJECTION = Refuse(code=grpc.StatusCode.INVALID_ARGUMENT, http_status=400, message="not like this")


@pytest.fixture
def backend() -> Iterator[OtlpServer]:
    with OtlpServer() as server:
        yield server


def build_request(name: str, size: int = 100) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    span = scope.spans.add(trace_id=os.urandom(16), span_id=os.urandom(8), name=name)
    span.attributes.add(key="filling").value.string_value = "x" * size
    encoded: bytes = request.SerializeToString()
    return encoded


def send(setup: ProcessorSetup, payload: bytes) -> grpc.StatusCode:
    with grpc.insecure_channel(f"127.0.0.1:{setup.grpc_port}") as channel:
        try:
            channel.unary_unary(METHOD)(payload, timeout=10)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
        return grpc.StatusCode.OK


def read_names(backend: OtlpServer) -> set[str]:
    return {
        span.name
        for one in backend.received(Signal.TRACES)
        for resource in ExportTraceServiceRequest.FromString(one.payload).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }


@pytest.mark.parametrize("fault", [Refuse(), Reset()], ids=["unavailable", "resets"])
def test_backend_that_fails_for_a_while_gets_everything_later(
    fault: Refuse | Reset, programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    setup = ProcessorSetup(tmp_path, backend.http_endpoint)
    processor = setup.start(programs).await_port(setup.grpc_port)
    backend.follow(then=fault)
    names = {f"span {number}" for number in range(30)}
    for name in names:
        assert send(setup, build_request(name)) is grpc.StatusCode.OK
    backend.wait_until_asked(5)
    backend.follow()
    wait_until(lambda: read_names(backend) == names, "not everything arrived after the fault")
    assert processor.stop() == 0


def test_backend_that_rejects_for_ever_blocks_nothing_behind_it(
    programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    setup = ProcessorSetup(tmp_path, backend.grpc_endpoint)
    processor = setup.start(programs).await_port(setup.grpc_port)
    backend.follow(REJECTION, REJECTION)
    for name in ("poison 1", "poison 2"):
        assert send(setup, build_request(name)) is grpc.StatusCode.OK
    backend.wait_until_asked(2)
    assert send(setup, build_request("good")) is grpc.StatusCode.OK
    wait_until(lambda: read_names(backend) == {"good"}, "the good span does not get past the rejected ones")
    assert setup.sum_counter("llmprism_lost_total") + setup.sum_counter("llmprism_dead_letters_total") >= 2
    assert processor.stop() == 0
    letters = list(read_dead_letters(setup.log_folder / "dead-letters"))
    assert len(letters) == 2


def test_sigterm_is_never_stuck_behind_a_silent_backend(
    programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    service = {"shutdown_timeout": f"{SHUTDOWN_S:.0f}s"}
    setup = ProcessorSetup(tmp_path, backend.grpc_endpoint, service=service)
    processor = setup.start(programs).await_port(setup.grpc_port)
    backend.follow(then=Stall())
    for number in range(20):
        assert send(setup, build_request(f"span {number}")) is grpc.StatusCode.OK
    backend.wait_until_asked(1)
    processor.stop(SHUTDOWN_S + STOP_MARGIN_S)
    backend.follow()
    backend.release()
    again = setup.start(programs).await_port(setup.grpc_port)
    wait_until(lambda: len(read_names(backend)) == 20, "what was left in the log did not arrive")
    assert again.stop() == 0


def test_full_disk_refuses_and_what_was_acknowledged_arrives(
    mount_disk: Callable[[str], Path], programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    disk = mount_disk("size=4m")
    service = {"log": {"directory": str(disk / "log"), "max_bytes": "64MiB"}}
    setup = ProcessorSetup(tmp_path, backend.grpc_endpoint, service=service)
    processor = setup.start(programs).await_port(setup.grpc_port)
    backend.follow(then=Refuse())
    codes = {f"span {n}": send(setup, build_request(f"span {n}", 300_000)) for n in range(40)}
    taken = {name for name, code in codes.items() if code is grpc.StatusCode.OK}
    refused = set(codes.values()) - {grpc.StatusCode.OK}
    assert refused
    assert refused <= {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}
    backend.follow()
    wait_until(lambda: taken <= read_names(backend), "acknowledged spans are missing")
    assert wait_until(
        lambda: send(setup, build_request("after")) is grpc.StatusCode.OK, "it does not recover"
    )
    assert processor.stop() == 0


def test_read_only_folder_is_one_line_that_names_it(
    mount_disk: Callable[[str], Path], programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    folder = mount_disk("ro,size=1m") / "log"
    setup = ProcessorSetup(tmp_path, backend.grpc_endpoint, service={"log": {"directory": str(folder)}})
    processor = setup.start(programs)
    assert processor.wait() == 1
    (line,) = processor.read_log().strip().splitlines()
    assert str(folder) in line
    assert "Traceback" not in line


def test_port_in_use_is_one_line_that_names_it(
    programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    setup = ProcessorSetup(tmp_path, "http://127.0.0.1:1", grpc_port=backend.grpc_port)
    processor = setup.start(programs)
    assert processor.wait() == 1
    (line,) = processor.read_log().strip().splitlines()
    assert str(backend.grpc_port) in line


def test_full_shared_memory_costs_the_engine_nothing(
    mount_disk: Callable[[str], Path], programs: Programs, backend: OtlpServer
) -> None:
    """The rings are allocated at the start: no room means no records, said once, and never SIGBUS."""
    disk = mount_disk("size=64k")
    (disk / "filling").write_bytes(b"x" * 60_000)
    engine = programs.start(
        "engine",
        [sys.executable, "-m", "otel_llmprism.testing.mini_engine", "--requests", "20", "--rate", "100"],
        {
            "OTEL_LLMPRISM_MODE": "sentinel",
            "OTEL_LLMPRISM_RUNTIME_DIR": str(disk / "run"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": backend.grpc_endpoint.replace("grpc", "http"),
        },
    )
    assert engine.wait(60) == 0
    *said, summary = engine.read_log().strip().splitlines()
    assert json.loads(summary)["steps"] > 0
    assert any("No space left" in line for line in said), said


def test_engine_that_is_killed_leaves_no_process_and_its_requests_arrive(
    programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    """The exporter process outlives the engine only until it has shipped what is in the ring."""
    environment = {
        "OTEL_LLMPRISM_MODE": "sentinel",
        "OTEL_LLMPRISM_RUNTIME_DIR": "/dev/shm/llmprism-test-" + tmp_path.name,
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
