# Full and read-only disks, taken ports and unusable files under the real processor and the all-in-one: one
# clear line or a counted drop, never a traceback, and it goes on once there is room.
import json
import os
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from otel_llmprism.exporters.otlp_client_result import SendStatus
from otel_llmprism.testing.numbered_load import NumberedLoad, count_numbers
from otel_llmprism.testing.otlp_server import OtlpServer, Refuse
from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Program, Programs, find_free_port, wait_until
from otel_llmprism.testing.small_disk import CannotMountError, fill_disk, make_read_only, mount_small_disk

MIB = 1 << 20
DISK_BYTES = 4 * MIB
NOWHERE = "grpc://127.0.0.1:9"  # nobody listens there


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    try:
        with mount_small_disk(tmp_path / "disk", DISK_BYTES) as folder:
            yield folder
    except CannotMountError as error:
        pytest.skip(str(error))


def build_load(port: int, requests: int, padding: str = "", first_request: int = 0) -> NumberedLoad:
    return NumberedLoad(
        f"grpc://127.0.0.1:{port}",
        max_requests=requests,
        padding=padding,
        pause_s=0.0,
        first_request=first_request,
        start_ns=time.time_ns(),  # a store forgets what is old
    )


def send_all(load: NumberedLoad) -> NumberedLoad:
    with load:
        load.wait()
    return load


def is_taken(port: int) -> bool:
    return bool(send_all(build_load(port, 1)).acknowledged)


def check_refusals(load: NumberedLoad) -> None:
    """Whoever is refused keeps the data and knows when to come again."""
    assert load.refusals
    assert {result.status for result in load.refusals} == {SendStatus.RETRYABLE}
    assert all(result.message.startswith("RESOURCE_EXHAUSTED") for result in load.refusals)
    assert all(result.retry_after_s for result in load.refusals)


def check_error_line(program: Program, status: int, *words: str) -> None:
    """It ended with one line that says what and how to mend."""
    assert program.wait() == status
    lines = program.read_log().splitlines()
    assert len(lines) == 1, lines
    assert all(word in lines[0] for word in words), lines[0]


def test_log_on_a_full_disk_refuses_with_retry_and_loses_nothing(
    programs: Programs, disk: Path, tmp_path: Path
) -> None:
    port = find_free_port()
    service = {"log": {"directory": str(disk / "log")}}
    setup = ProcessorSetup(tmp_path, f"grpc://127.0.0.1:{port}", service=service)
    processor = setup.start(programs).await_port(setup.grpc_port)
    load = send_all(build_load(setup.grpc_port, 400, "x" * 2000))  # 8 MB for a disk of 4 MiB
    check_refusals(load)
    assert len(load.acknowledged) * 2000 > DISK_BYTES / 4
    assert setup.sum_counter("llmprism_log_errors_total", operation="append", cause="no_space") > 0
    with OtlpServer(grpc_port=port) as backend:

        def is_all_there() -> bool:
            return load.acknowledged <= count_numbers(backend.received()).keys()

        wait_until(is_all_there, "acknowledged spans are missing at the backend")
        wait_until(lambda: is_taken(setup.grpc_port), "it refuses although there is room again")
        assert processor.stop() == 0
    log = processor.read_log()
    assert "stopped: nothing left" in log
    assert "Traceback" not in log
    assert log.count("No space left on device") <= 3, "a full disk is said once, not once a request"


def test_dead_letters_on_a_full_disk_are_counted_and_what_is_behind_flows(
    programs: Programs, tmp_path: Path
) -> None:
    try:
        letters_disk = mount_small_disk(tmp_path / "write-ahead-log" / "dead-letters", MIB)
        with letters_disk as letters, OtlpServer() as backend:
            fill_disk(letters)
            setup = ProcessorSetup(tmp_path, backend.grpc_endpoint)
            processor = setup.start(programs).await_port(setup.grpc_port)
            backend.follow(then=Refuse(grpc.StatusCode.INVALID_ARGUMENT, 400))
            send_all(build_load(setup.grpc_port, 20))
            wait_until(
                lambda: setup.sum_counter("llmprism_lost_total", stage="dead_letters", cause="disk") == 200,
                "rejected spans that could not be kept are not counted",
            )
            backend.follow()
            good = send_all(build_load(setup.grpc_port, 20))
            wait_until(lambda: count_numbers(backend.received()).keys() == good.acknowledged, "it is stuck")
            assert processor.stop() == 0
            assert "Traceback" not in processor.read_log()
    except CannotMountError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_start_on_a_disk_that_takes_nothing_is_one_line(
    programs: Programs, disk: Path, tmp_path: Path, how: str
) -> None:
    if how == "full":
        (disk / "log").mkdir(mode=0o700)
        fill_disk(disk)
    else:
        make_read_only(disk)
    service = {"log": {"directory": str(disk / "log")}}
    program = ProcessorSetup(tmp_path, NOWHERE, service=service).start(programs)
    check_error_line(program, 1, str(disk / "log"), "writable")


@pytest.mark.parametrize("taken", ["grpc_port", "http_port", "health_port"])
def test_port_in_use_is_one_line(programs: Programs, tmp_path: Path, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = int(other.getsockname()[1])
        setup = ProcessorSetup(tmp_path, NOWHERE, **{taken: port})  # type: ignore[arg-type]
        check_error_line(setup.start(programs), 1, f"127.0.0.1:{port}", "choose another port")


BAD_FILES = {
    "no YAML": b"receivers: [",
    "binary": bytes(range(256)) * 10,
    "a list": b"- receivers",
    "unknown key": b"recievers: {}",
    "wrong type": b"service: {shutdown_timeout: [1]}",
    "deep": b"[" * 100_000,
    "aliases that explode": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (i + 1, i + 1, b",".join([b"*%c" % i] * 9)) for i in range(97, 105)),
    "too large": b"# " + b"x" * (2 * MIB),
}


@pytest.mark.parametrize(
    ("command", "kind"), [*(("processor", kind) for kind in BAD_FILES), ("up", "a list")]
)
def test_configuration_that_cannot_be_used_is_one_line(
    programs: Programs, tmp_path: Path, command: str, kind: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(BAD_FILES[kind])
    words: list[str | Path] = [sys.executable, "-m", "otel_llmprism", command, "--config", path]
    check_error_line(programs.start(command, words), 2, "bad.yaml")


def test_configuration_that_is_a_folder_is_one_line(programs: Programs, tmp_path: Path) -> None:
    words: list[str | Path] = [sys.executable, "-m", "otel_llmprism", "processor", "--config", tmp_path]
    check_error_line(programs.start("processor", words), 2, str(tmp_path), "check path and permissions")


class UpSetup:
    """`up` with its log apart from its store."""

    def __init__(self, folder: Path, data: Path, log: Path) -> None:
        self.grpc_port, self.ui_port = find_free_port(), find_free_port()
        self.metrics = ProcessorSetup(folder, NOWHERE, health_port=self.ui_port)  # the same page
        self._data = data
        self._file = folder / "up.yaml"
        self._file.write_text(yaml.safe_dump({"service": {"log": {"directory": str(log)}}}))

    def start(self, programs: Programs) -> Program:
        words = [sys.executable, "-m", "otel_llmprism", "up", "--config", str(self._file)]
        words += ["--data", str(self._data), "--otlp-grpc", f"127.0.0.1:{self.grpc_port}"]
        words += ["--otlp-http", "127.0.0.1:0", "--ui", f"127.0.0.1:{self.ui_port}"]
        return programs.start("up", words)

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ui_port}/{path}", timeout=10) as answer:
            return json.load(answer)


def count_stored(setup: UpSetup) -> int:
    traces = setup.ask("api/llmprism/v1/traces?limit=1000")["traces"]
    return sum(int(trace["spanCount"]) for trace in traces)


def test_store_on_a_full_disk_counts_goes_on_and_still_answers(
    programs: Programs, disk: Path, tmp_path: Path
) -> None:
    setup = UpSetup(tmp_path, disk / "data", tmp_path / "log")
    up = setup.start(programs).await_port(setup.ui_port)
    send_all(build_load(setup.grpc_port, 10))
    wait_until(lambda: setup.ask("api/services")["data"], "nothing is stored")
    ballast = fill_disk(disk)
    padding = os.urandom(2000).hex()
    load = send_all(build_load(setup.grpc_port, 100, padding, first_request=1000))
    assert len(load.acknowledged) == 1000, "clients must not feel a full store"
    count = setup.metrics.sum_counter

    def is_accounted_for() -> bool:
        gone = count("llmprism_store_forgotten_total") + count("llmprism_lost_total", stage="store")
        return gone > 0 and gone + count_stored(setup) >= len(load.acknowledged)

    wait_until(is_accounted_for, "spans are neither stored nor counted as lost or forgotten")
    ballast.unlink()
    wait_until(lambda: is_stored_again(setup), "it stores nothing although there is room again")
    assert up.stop() == 0
    assert "Traceback" not in up.read_log()


def is_stored_again(setup: UpSetup) -> bool:
    """Send a span and find it."""
    send_all(build_load(setup.grpc_port, 1, first_request=5000))
    return bool(setup.ask(f"api/traces?traceID={50_001:032x}")["data"])


def test_log_of_up_on_a_full_disk_refuses_with_retry(programs: Programs, disk: Path, tmp_path: Path) -> None:
    setup = UpSetup(tmp_path, tmp_path / "data", disk / "log")
    up = setup.start(programs).await_port(setup.ui_port)
    ballast = fill_disk(disk)
    check_refusals(send_all(build_load(setup.grpc_port, 100, "x" * 2000)))
    assert setup.ask("api/services")["data"] is not None
    ballast.unlink()
    wait_until(lambda: is_taken(setup.grpc_port), "it refuses although there is room again")
    assert up.stop() == 0
    assert "Traceback" not in up.read_log()
