# The running processor against backends that are slow, reset, reject for ever or are away: what was
# acknowledged arrives, memory stays flat, clients are told when to come again, SIGTERM ends it in time.
import contextlib
import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from otel_llmprism.exporters.otlp_client_result import SendStatus
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.dead_letters import read_dead_letters
from otel_llmprism.testing.numbered_load import NumberedLoad, build_numbered_request, count_numbers
from otel_llmprism.testing.otlp_server import Accept, OtlpServer, Received, Refuse, Reset, Stall
from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Program, Programs, find_free_port, wait_until

MIB = 1 << 20
POISON = b"poison"
SHUTDOWN_S = 3
SHUTDOWN_MARGIN_S = 5  # Python's own start and end on a busy machine
PROTOCOLS = ("grpc", "http")


class SlowBackend(OtlpServer):
    """Accepts everything, each request after a while."""

    def answer(self, request: Received) -> Accept | Refuse | Reset:
        time.sleep(0.03)
        return super().answer(request)


class PickyBackend(OtlpServer):
    """Rejects for good whatever holds the poison."""

    def answer(self, request: Received) -> Accept | Refuse | Reset:
        if POISON in request.payload:
            return Refuse(grpc.StatusCode.INVALID_ARGUMENT, 400, "this will never do")
        return super().answer(request)


@contextlib.contextmanager
def reset_connections(port: int) -> Iterator[list[int]]:
    """Answer each connection to the port with a reset after its first bytes; yields how many so far."""
    count = [0]
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(0.05)
        is_over = threading.Event()

        def reset_each() -> None:
            while not is_over.is_set():
                with contextlib.suppress(TimeoutError, OSError):
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(1.0)
                        connection.recv(1)
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    count[0] += 1

        thread = threading.Thread(target=reset_each)
        thread.start()
        try:
            yield count
        finally:
            is_over.set()
            thread.join()


def build_load(setup: ProcessorSetup, requests: int, padding: str = "") -> NumberedLoad:
    endpoint = f"grpc://127.0.0.1:{setup.grpc_port}"
    return NumberedLoad(endpoint, max_requests=requests, padding=padding, pause_s=0.0)


def send_all(load: NumberedLoad) -> None:
    with load:
        load.wait()


def await_all(load: NumberedLoad, backend: OtlpServer) -> None:
    def is_all_there() -> bool:
        return load.acknowledged <= count_numbers(backend.received()).keys()

    wait_until(is_all_there, "acknowledged spans are missing at the backend", 60)


def stop_in_time(processor: Program) -> str:
    """End it with SIGTERM within its stated time and return what it said at last."""
    assert processor.stop(SHUTDOWN_S + SHUTDOWN_MARGIN_S) == 0
    assert "Traceback" not in processor.read_log()
    return processor.read_log().splitlines()[-1]


def open_server(protocol: str, port: int) -> OtlpServer:
    return OtlpServer(grpc_port=port) if protocol == "grpc" else OtlpServer(http_port=port)


def test_slow_backend_gets_everything_once(programs: Programs, tmp_path: Path) -> None:
    with SlowBackend() as backend:
        queue = {"max_bytes": 64 << 10, "max_requests": 20}  # most of it waits in the log alone
        in_flight = {"requests": 4}
        setup = ProcessorSetup(
            *(tmp_path, backend.grpc_endpoint), service={"queue": queue}, exporter={"in_flight": in_flight}
        )
        processor = setup.start(programs).await_port(setup.grpc_port)
        load = build_load(setup, 300)
        send_all(load)
        assert len(load.acknowledged) == 3000, "a slow backend must not be felt by clients"
        await_all(load, backend)
        assert set(count_numbers(backend.received()).values()) == {1}
        assert "nothing left" in stop_in_time(processor)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_backend_that_resets_gets_everything_once_it_behaves(
    programs: Programs, tmp_path: Path, protocol: str
) -> None:
    port = find_free_port()
    setup = ProcessorSetup(tmp_path, f"{protocol}://127.0.0.1:{port}")
    with reset_connections(port) as count:
        processor = setup.start(programs).await_port(setup.grpc_port)
        load = build_load(setup, 50)
        send_all(load)
        wait_until(lambda: count[0] >= 3, "it does not come back after a reset")
    assert len(load.acknowledged) == 500
    with open_server(protocol, port) as backend:
        await_all(load, backend)
        assert set(count_numbers(backend.received()).values()) == {1}
        assert "nothing left" in stop_in_time(processor)
    assert processor.read_log().count("backend does not take traces") == 1, "an outage is said once"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rejected_requests_become_dead_letters_and_what_is_behind_flows(
    programs: Programs, tmp_path: Path, protocol: str
) -> None:
    with PickyBackend() as backend:
        endpoint = backend.grpc_endpoint if protocol == "grpc" else backend.http_endpoint
        setup = ProcessorSetup(tmp_path, endpoint, exporter={"in_flight": {"requests": 1}})
        processor = setup.start(programs).await_port(setup.grpc_port)
        poisoned, good = build_load(setup, 5, POISON.decode()), build_load(setup, 60)
        send_all(poisoned)
        send_all(good)
        assert len(poisoned.acknowledged) == 50
        await_all(good, backend)
        assert count_numbers(backend.received()).keys() == good.acknowledged
        assert setup.sum_counter("llmprism_dead_letters_total", signal="traces") == 5
        assert setup.sum_counter("llmprism_lost_total", stage="export", cause="rejected") == 50
        assert "nothing left" in stop_in_time(processor)
    letters = list(read_dead_letters(setup.log_folder / "dead-letters"))
    expected = {build_numbered_request(first, 10, POISON.decode()) for first in range(0, 50, 10)}
    assert {letter.payload for letter in letters} == expected
    assert all("this will never do" in letter.cause for letter in letters)


def test_memory_is_flat_and_a_full_log_says_when_to_come_again(programs: Programs, tmp_path: Path) -> None:
    port = find_free_port()
    log_bytes, queue_bytes = 48 * MIB, 2 * MIB
    setup = ProcessorSetup(
        *(tmp_path, f"grpc://127.0.0.1:{port}"),
        service={
            "log": {"directory": str(tmp_path / "write-ahead-log"), "max_bytes": log_bytes},
            "queue": {"max_bytes": queue_bytes},
        },
    )
    processor = setup.start(programs).await_port(setup.grpc_port)
    with OtlpServer(grpc_port=port) as backend:
        warm = build_load(setup, 200, "w" * 4000)
        send_all(warm)
        await_all(warm, backend)
    before = psutil.Process(processor.pid).memory_info().rss
    load = build_load(setup, 2000, "x" * 4000)  # 80 MB for a log of 48 MiB
    with load:
        highest = sample_memory(processor, load)
    assert len(load.acknowledged) * 4000 > log_bytes / 2
    assert load.refusals, "the log never got full"
    assert {result.status for result in load.refusals} == {SendStatus.RETRYABLE}
    assert all(result.message.startswith("RESOURCE_EXHAUSTED") for result in load.refusals)
    assert all(result.retry_after_s for result in load.refusals)
    growth = highest - before
    print(f"memory grew by {growth / MIB:.1f} MiB over {log_bytes / MIB:.0f} MiB of log")  # noqa: T201 - the figure
    assert growth < log_bytes / 2
    with OtlpServer(grpc_port=port) as backend:
        await_all(load, backend)
        wait_until(lambda: is_taken(setup), "requests are refused although the log has room again")
        assert "nothing left" in stop_in_time(processor)


def is_taken(setup: ProcessorSetup) -> bool:
    load = build_load(setup, 1)
    send_all(load)
    return bool(load.acknowledged)


def sample_memory(processor: Program, load: NumberedLoad) -> int:
    """Return the most memory that the processor had until the load was sent."""
    process, highest = psutil.Process(processor.pid), 0
    sender = threading.Thread(target=load.wait)
    sender.start()
    while sender.is_alive():
        highest = max(highest, process.memory_info().rss)
        sender.join(0.05)
    return highest


def test_sigterm_with_a_backend_that_is_away_ends_in_time_and_loses_nothing(
    programs: Programs, tmp_path: Path
) -> None:
    port = find_free_port()
    setup = build_impatient_setup(tmp_path, port)
    processor = setup.start(programs).await_port(setup.grpc_port)
    load = build_load(setup, 100)
    send_all(load)
    assert re.search(r"stopped: \d+ bytes wait in the log .* for the next start", stop_in_time(processor))
    check_rest_arrives(setup, programs, load, port)


def test_sigterm_in_the_middle_of_exports_ends_in_time_and_loses_nothing(
    programs: Programs, tmp_path: Path
) -> None:
    port = find_free_port()
    setup = build_impatient_setup(tmp_path, port)
    with OtlpServer(grpc_port=port) as silent:
        silent.follow(then=Stall())
        processor = setup.start(programs).await_port(setup.grpc_port)
        load = build_load(setup, 100)
        send_all(load)
        silent.wait_until_asked(5)
        assert "bytes wait in the log" in stop_in_time(processor)
        assert silent.received(Signal.TRACES) == []
    check_rest_arrives(setup, programs, load, port)


def build_impatient_setup(folder: Path, port: int) -> ProcessorSetup:
    service = {"shutdown_timeout": f"{SHUTDOWN_S}s"}
    return ProcessorSetup(folder, f"grpc://127.0.0.1:{port}", service=service)


def check_rest_arrives(setup: ProcessorSetup, programs: Programs, load: NumberedLoad, port: int) -> None:
    """A second start brings all that the first one acknowledged to a backend that is well again."""
    assert len(load.acknowledged) == 1000
    with OtlpServer(grpc_port=port) as backend:
        processor = setup.start(programs).await_port(setup.grpc_port)
        await_all(load, backend)
        assert "nothing left" in stop_in_time(processor)


def test_sigterm_that_another_thread_gets_is_obeyed_as_well(programs: Programs, tmp_path: Path) -> None:
    """The system may give a signal to any thread, and the main one waits meanwhile."""
    setup = build_impatient_setup(tmp_path, find_free_port())
    processor = setup.start(programs).await_port(setup.grpc_port)
    wait_until(lambda: "ready" in processor.read_log(), "it does not get ready")
    threads = {int(task.name) for task in Path(f"/proc/{processor.pid}/task").iterdir()}
    os.kill(max(threads - {processor.pid}), signal.SIGTERM)
    assert processor.wait(SHUTDOWN_S + SHUTDOWN_MARGIN_S) == 0
    assert "nothing left" in processor.read_log()
