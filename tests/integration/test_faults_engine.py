# The instrumented engine when its node is unkind: no room or no right in the ring folder, no disk for the
# ledger, no exporter process. It serves every request and ends with 0 whatever happens to its telemetry.
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.semconv import metric
from otel_llmprism.testing.otlp_server import OtlpServer
from otel_llmprism.testing.programs import Program, Programs, wait_until
from otel_llmprism.testing.small_disk import CannotMountError, fill_disk, make_read_only, mount_small_disk

MIB = 1 << 20
REQUESTS = 60
RING_SLOTS = 4096  # half a MiB
EXPORTER = "otel_llmprism.service.exporter_process"
OFF = "llmprism is off in this process"


class Engine:
    """Starts the mini engine and reads what it and its exporter say."""

    def __init__(self, programs: Programs, backend: OtlpServer, folder: Path, runtime: Path) -> None:
        self._programs = programs
        self._backend = backend
        self._environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": backend.http_endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_METRIC_EXPORT_INTERVAL": "300",
            "OTEL_LLMPRISM_RUNTIME_DIR": str(runtime),
            "OTEL_LLMPRISM_LEDGER_DIR": str(folder / "ledger"),
            "OTEL_LLMPRISM_RING_SLOTS": str(RING_SLOTS),
        }

    def start(self, *arguments: str, requests: int = REQUESTS, **environment: str) -> Program:
        command = [sys.executable, "-m", "otel_llmprism.testing.mini_engine", "--requests", str(requests)]
        command += ["--rate", "60", "--output", "8", *arguments]
        return self._programs.start("engine", command, self._environment | environment)

    def check_served(self, engine: Program) -> dict[str, Any]:
        """It ended in order, by no signal and with no traceback; return its summary."""
        assert engine.wait(120) == 0
        log = engine.read_log()
        assert "Traceback" not in log
        (summary,) = [line for line in log.splitlines() if line.startswith('{"steps"')]
        return dict(json.loads(summary))

    def await_exporter(self, summary: dict[str, Any]) -> None:
        wait_until(lambda: not psutil.pid_exists(summary["exporter_pid"]), "the exporter does not end", 30)

    def count_requests(self) -> int:
        payloads = [one.payload for one in self._backend.received(Signal.TRACES)]
        requests = [ExportTraceServiceRequest.FromString(payload) for payload in payloads]
        scopes = [scope for r in requests for rs in r.resource_spans for scope in rs.scope_spans]
        return sum(span.name == "llmprism.request" for scope in scopes for span in scope.spans)

    def sum_lost(self, stage: str) -> float:
        """Return what the exporter last said that it lost at a stage."""
        last: dict[str, float] = {}
        for one in self._backend.received(Signal.METRICS):
            for resource in ExportMetricsServiceRequest.FromString(one.payload).resource_metrics:
                points = [
                    p
                    for s in resource.scope_metrics
                    for m in s.metrics
                    if m.name == metric.LOST
                    for p in m.sum.data_points
                ]
                for point in points:
                    labels = {item.key: item.value.string_value for item in point.attributes}
                    if labels.get("stage") == stage:
                        last[str(labels)] = point.as_double or float(point.as_int)
        return sum(last.values())


@pytest.fixture
def backend() -> Iterator[OtlpServer]:
    with OtlpServer() as server:
        yield server


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that one small ring fits on."""
    try:
        with mount_small_disk(tmp_path / "disk", MIB) as folder:
            yield folder
    except CannotMountError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("how", ["full", "too small", "read-only"])
def test_engine_without_room_for_rings_runs_on_and_says_once_that_it_is_off(
    programs: Programs, backend: OtlpServer, disk: Path, tmp_path: Path, how: str
) -> None:
    if how == "full":
        fill_disk(disk)
    elif how == "read-only":
        make_read_only(disk)
    slots = 1 << 15 if how == "too small" else RING_SLOTS
    engine = Engine(programs, backend, tmp_path, disk / "rings")
    program = engine.start("--ranks", "2", OTEL_LLMPRISM_RING_SLOTS=str(slots))
    summary = engine.check_served(program)
    assert summary["steps"] > 0
    assert "run" not in summary
    assert program.read_log().count(OFF) == 1
    assert "OTEL_LLMPRISM_RUNTIME_DIR" in program.read_log()
    assert not list(disk.glob("rings/*"))
    assert engine.count_requests() == 0


def test_rank_without_room_for_its_ring_is_off_and_the_others_are_not(
    programs: Programs, backend: OtlpServer, disk: Path, tmp_path: Path
) -> None:
    engine = Engine(programs, backend, tmp_path, disk / "rings")
    program = engine.start("--ranks", "2", OTEL_LLMPRISM_RING_SLOTS=str(RING_SLOTS))
    summary = engine.check_served(program)
    assert program.read_log().count(OFF) == 1, "half a MiB and another do not fit on one MiB with the rest"
    engine.await_exporter(summary)
    assert engine.count_requests() == REQUESTS


def test_ring_folder_that_fills_up_under_way_costs_nothing(
    programs: Programs, backend: OtlpServer, disk: Path, tmp_path: Path
) -> None:
    engine = Engine(programs, backend, tmp_path, disk / "rings")
    program = engine.start(requests=150)
    # The engine has its room; its exporter is just starting and finds none.
    wait_until(lambda: list(disk.glob("rings/*/*.ring")), "there is no ring")
    wait_until(lambda: psutil.Process(program.pid).children(), "there is no exporter")
    fill_disk(disk)
    summary = engine.check_served(program)
    engine.await_exporter(summary)
    assert engine.count_requests() == 150
    assert OFF not in program.read_log()
    assert engine.sum_lost("exporter") == 0


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_ledger_disk_that_takes_nothing_is_counted_and_the_ledger_still_shipped(
    programs: Programs, backend: OtlpServer, disk: Path, tmp_path: Path, how: str
) -> None:
    if how == "full":
        fill_disk(disk)
    else:
        make_read_only(disk)
    engine = Engine(programs, backend, tmp_path, tmp_path / "rings")
    program = engine.start(requests=120, OTEL_LLMPRISM_LEDGER_DIR=str(disk / "ledger"))
    summary = engine.check_served(program)
    engine.await_exporter(summary)
    assert engine.count_requests() == 120
    assert backend.received(Signal.LOGS), "the ledger was not shipped"
    assert engine.sum_lost("ledger_files") > 0


def test_exporter_that_is_killed_again_and_again_does_not_touch_the_engine(
    programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    engine = Engine(programs, backend, tmp_path, tmp_path / "rings")
    program = engine.start(requests=300, OTEL_LLMPRISM_RING_SLOTS="256")
    killed: set[int] = set()
    while program.process.poll() is None:
        killed |= kill_exporters(program)
    summary = engine.check_served(program)
    assert summary["steps"] > 0
    assert killed
    assert len(killed) <= 4, "an exporter that dies again and again is not started for ever"


def kill_exporters(engine: Program) -> set[int]:
    """Kill what the engine started as its exporter; return which."""
    killed = set()
    for child in psutil.Process(engine.pid).children():
        try:
            if EXPORTER in child.cmdline():  # empty once it is dead
                child.kill()
                killed.add(child.pid)
        except psutil.Error:
            continue
    return killed
