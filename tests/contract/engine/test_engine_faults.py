# What dies, what stays: the engine must not notice its exporter, and the exporter must ship what a killed
# engine left.
import os
import signal
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.otlp_server import Refuse

LONG = ("--requests", "100000", "--closed", "8", "--output", "40")
SHORT = ("--requests", "40", "--rate", "200", "--output", "8")
CANARY = "xyzzycanarytext"


def find_exporter(case: Any) -> int:
    """Return the pid that holds the run folder's lock."""
    folder = case.find_run_folder()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and is_exporter_of(entry, folder):
                return int(entry.name)
        time.sleep(0.02)
    raise AssertionError(case.log)


def is_exporter_of(process: Path, folder: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"otel_llmprism.service.exporter_process" in words and str(folder).encode() in words


def test_killed_engine_leaves_nothing_unsent_and_nothing_behind(start_engine: Any) -> None:
    case = start_engine(*LONG, "--ranks", "2", OTEL_LLMPRISM_STEPS="all")
    exporter = find_exporter(case)
    case.server.wait_for(12)
    case.process.kill()
    case.process.wait()
    case.wait_for_exporter(exporter)
    spans = case.list_spans("llmprism.request")
    failed = [span for span in spans if span.status.code == Status.STATUS_CODE_ERROR]
    assert 0 < len(failed) < len(spans)  # what was in flight, beside what had ended
    steps = sorted(read_step_id(span) for span in case.list_spans("llmprism.step"))
    assert steps == list(range(len(steps)))
    assert list((case.folder / "runtime").iterdir()) == []


def test_killed_exporter_does_not_stop_the_engine_and_comes_back_for_what_is_left(start_engine: Any) -> None:
    case = start_engine(
        "--requests", "400", "--rate", "100", "--output", "16", OTEL_LLMPRISM_RING_SLOTS="512"
    )
    exporter = find_exporter(case)
    case.server.wait_for(2)
    os.kill(exporter, signal.SIGKILL)
    assert case.process.wait(timeout=120) == 0, case.log
    ended = [line for line in case.read_book() if line.get("event") == "ended"]
    assert len(ended) == 400
    assert case.summary["exporter_pid"] != exporter
    case.wait_for_exporter(case.summary["exporter_pid"])
    assert list((case.folder / "runtime").iterdir()) == []
    # What the ring could not hold meanwhile is counted, not passed over.
    points = case.list_metrics()["llmprism.lost"].sum.data_points
    assert read_point(points, stage="ring", cause="full") > 0
    numbers = [read_seq(record) for record in case.list_log_records("llmprism.ledger")]
    assert len(set(numbers)) == len(numbers)


def test_sigterm_drains_the_exporter_and_leaves_the_rings_of_a_live_engine(start_engine: Any) -> None:
    case = start_engine(*LONG)
    exporter = find_exporter(case)
    case.server.wait_for(2)
    os.kill(exporter, signal.SIGTERM)
    case.wait_for_exporter(exporter)
    assert case.process.poll() is None
    assert list(case.find_run_folder().glob("*.ring"))
    assert case.list_spans("llmprism.request")


def test_local_ledger_stays_on_the_node(start_engine: Any) -> None:
    case = start_engine(*SHORT, OTEL_LLMPRISM_LEDGER="local")
    case.wait_for_end()
    assert case.list_spans("llmprism.request")
    assert case.server.received(Signal.LOGS) == []
    assert list((case.folder / "ledger").glob("*.ledger"))


def test_refused_ledger_is_counted_and_said_once(start_engine: Any, backend: Any) -> None:
    # The fake backend does not serve this path: 404.
    load = ("--requests", "40", "--rate", "20")
    case = start_engine(*load, OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=f"{backend.http_endpoint}/nowhere")
    case.wait_for_end()
    assert case.log.count("no service for logs") == 1
    assert case.list_spans("llmprism.request")
    points = case.list_metrics()["llmprism.lost"].sum.data_points
    assert read_point(points, stage="send", cause="refused") > 1


def test_backend_that_is_down_costs_neither_the_engine_nor_the_end(start_engine: Any) -> None:
    case = start_engine(*SHORT, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_TRACES_EXPORTER="otlp")
    case.server.follow(then=Refuse(grpc.StatusCode.UNAVAILABLE))
    case.wait_for_end()
    assert sum(line.get("event") == "ended" for line in case.read_book()) == 40


def test_disabled_engine_makes_no_file_no_process_and_no_signal(start_engine: Any) -> None:
    case = start_engine(*SHORT, OTEL_LLMPRISM_DISABLED="true", OTEL_TRACES_EXPORTER="none")
    assert case.process.wait(timeout=60) == 0
    assert "exporter_pid" not in case.summary
    assert not (case.folder / "runtime").exists()
    assert case.server.received() == []


def test_steps_none_gives_requests_and_no_step_spans(start_engine: Any) -> None:
    case = start_engine(*SHORT, OTEL_LLMPRISM_STEPS="none")
    case.wait_for_end()
    assert len(case.list_spans("llmprism.request")) == 40
    assert case.list_spans("llmprism.step") == []


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_canary_prompt_is_in_no_ring_no_ledger_and_no_otlp(start_engine: Any, protocol: str) -> None:
    load = ("--requests", "120", "--rate", "60", "--canary-prompt", CANARY)
    case = start_engine(*load, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
    folder = case.find_run_folder()
    case.server.wait_for(3)
    seen = b"".join(path.read_bytes() for path in folder.glob("*"))
    assert b"req-1" in seen  # the ring does hold the requests
    case.wait_for_end()
    seen += b"".join(path.read_bytes() for path in (case.folder / "ledger").glob("*"))
    seen += b"".join(received.payload for received in case.server.received())
    assert {received.signal for received in case.server.received()} == set(Signal)
    assert CANARY.encode() not in seen
    assert CANARY not in case.log


def read_step_id(span: Any) -> int:
    return int(next(item.value.int_value for item in span.attributes if item.key == "llmprism.step.id"))


def read_seq(record: Any) -> int:
    return int(next(item.value.int_value for item in record.attributes if item.key == "llmprism.ledger.seq"))


def read_point(points: Any, **labels: str) -> float:
    for point in points:
        if {item.key: item.value.string_value for item in point.attributes} == labels:
            return float(point.as_double)
    return 0.0
