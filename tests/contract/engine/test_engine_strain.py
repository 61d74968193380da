# The engine under what a production engine meets: dead workers, ids and headers that nobody foresaw,
# thousands of waiting requests, endpoints that are slow or refuse, children that know nothing of us.
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.ring_records import MAX_ID_BYTES
from otel_llmprism.semconv.metric import ENGINE_REQUESTS
from otel_llmprism.testing.otlp_server import OtlpServer, Refuse, Reply, Stall

LONG = ("--requests", "100000", "--closed", "8", "--output", "40")
SHORT = ("--requests", "40", "--rate", "200", "--output", "8")

# An engine of two words: it books what it is told on stdin, through the API that real hooks call.
BOOKING = """
import json, sys, time
from otel_llmprism.instrumentation.engine_run import start_engine_run
from otel_llmprism.native.ring_records import Finish
run = start_engine_run("mini", "0", ranks=0)
requests = json.load(sys.stdin)
for request_id, traceparent in requests:
    run.requests.record_arrival(request_id, time.monotonic_ns(), traceparent, external_id=request_id)
for request_id, _ in requests:
    run.requests.record_end(request_id, time.monotonic_ns(), Finish.STOP, prompt_tokens=1, output_tokens=1)
run.close()
print(json.dumps({"failures": run.requests.hook.failures, "exporter_pid": run.exporter_pid}))
"""
# The same with a scheduler that takes 256 of those that wait in each step.
WAITING = """
import json, os, sys, time
os.environ["OTEL_LLMPRISM_RING_SLOTS"] = str(1 << 18)
from otel_llmprism.instrumentation.engine_run import start_engine_run
from otel_llmprism.instrumentation.step_records import EngineState
from otel_llmprism.native.ring_records import Finish, RequestEvent
run = start_engine_run("mini", "0", ranks=0)
waiting = [request_id for request_id, _ in json.load(sys.stdin)]
for request_id in waiting:
    run.requests.record_arrival(request_id, time.monotonic_ns())
    run.requests.record_event(request_id, RequestEvent.QUEUED, time.monotonic_ns())
while waiting:
    batch, waiting = waiting[:256], waiting[256:]
    state = EngineState(waiting=len(waiting), running=len(batch))
    start_ns = time.monotonic_ns()
    tokens = dict.fromkeys(batch, 1)
    ticket = run.steps.record_scheduled(tokens, batch, state, start_ns, time.monotonic_ns(), joined=batch)
    run.steps.record_output(ticket, time.monotonic_ns())
    run.steps.record_left(batch)
    for request_id in batch:
        now_ns = time.monotonic_ns()
        run.requests.record_end(request_id, now_ns, Finish.STOP, prompt_tokens=1, output_tokens=1)
    time.sleep(0.05)
failures = run.requests.hook.failures + run.steps.hook.failures
dropped, is_off = run.writer.dropped, run.steps.hook.is_off
run.close()
answer = {"failures": failures, "dropped": dropped, "steps_off": is_off, "exporter_pid": run.exporter_pid}
print(json.dumps(answer))
"""
CLEAN_CHILD = """
import os, sys
from otel_llmprism.instrumentation import entry_points, process_run
entry_points.prepare_environment()
entry_points.install_frameworks(entry_points.FRAMEWORKS)
assert process_run.join_run("child") is None
print("served", flush=True)
"""


def find_workers(case: Any) -> list[int]:
    """Return the engine's ranks beyond its own: those that have a ring in the run's folder."""
    rings = case.find_run_folder().glob("rank*.ring")
    return [int(path.name.split("-")[1]) for path in rings]


def test_killed_worker_ends_the_engine_and_everything_recorded_arrives(start_engine: Any) -> None:
    case = start_engine(*LONG, "--ranks", "2", OTEL_LLMPRISM_STEPS="all")
    case.server.wait_for(12)
    (worker,) = find_workers(case)
    exporters = [
        child.pid
        for child in psutil.Process(case.process.pid).children()
        if "otel_llmprism.service.exporter_process" in child.cmdline()
    ]
    os.kill(worker, signal.SIGKILL)
    assert case.process.wait(timeout=60) != 0, "the engine's own matter, as without us"
    for exporter in exporters:
        case.wait_for_exporter(exporter)
    failed = [
        span for span in case.list_spans("llmprism.request") if span.status.code == Status.STATUS_CODE_ERROR
    ]
    assert failed
    ids = sorted(
        next(item.value.int_value for item in span.attributes if item.key == "llmprism.step.id")
        for span in case.list_spans("llmprism.step")
    )
    assert ids == list(range(len(ids)))


def book(
    backend: OtlpServer, folder: Path, requests: list[tuple[str, str]], script: str = BOOKING
) -> dict[str, Any]:
    """Run the booking engine until its exporter has ended; return what it said."""
    environment = {
        "PATH": os.environ["PATH"],
        "OTEL_EXPORTER_OTLP_ENDPOINT": backend.http_endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_LLMPRISM_RUNTIME_DIR": str(folder / "runtime"),
        "OTEL_LLMPRISM_LEDGER_DIR": str(folder / "ledger"),
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(requests),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    said: dict[str, Any] = json.loads(done.stdout)
    deadline = time.monotonic() + 30
    while psutil.pid_exists(said["exporter_pid"]):
        assert time.monotonic() < deadline, "the exporter does not end"
        time.sleep(0.02)
    return said


def list_requests(backend: OtlpServer) -> list[Any]:
    requests = [ExportTraceServiceRequest.FromString(one.payload) for one in backend.received(Signal.TRACES)]
    scopes = [scope for request in requests for rs in request.resource_spans for scope in rs.scope_spans]
    return [span for scope in scopes for span in scope.spans if span.name == "llmprism.request"]


def read_text(span: Any, key: str) -> str:
    return str(next(item.value.string_value for item in span.attributes if item.key == key))


def test_ids_of_any_script_and_any_length_are_served_and_told_in_valid_utf8(
    backend: OtlpServer, tmp_path: Path
) -> None:
    ids = [
        "plain",
        "anfrage-ä-请求-запрос-🦙",
        "🦙" * 5000,
        "x" * 10_240,
        "nul\0and\nnewline",
        "lone \ud800 surrogate",
        "",
    ]
    said = book(backend, tmp_path, [(request_id, "") for request_id in ids])
    assert said["failures"] == 0
    told = {read_text(span, "llmprism.request.id") for span in list_requests(backend)}
    assert len(list_requests(backend)) == len(ids)
    assert {"plain", "anfrage-ä-请求-запрос-🦙", "nul\0and\nnewline"} <= told
    cut = [one for one in told if "~" in one]
    for request_id in ids[2:4]:
        assert any(request_id.startswith(one.partition("~")[0]) for one in cut)
    assert max(len(one.encode()) for one in told) <= MAX_ID_BYTES


def test_malformed_traceparents_give_roots_and_unsampled_ones_no_span(
    backend: OtlpServer, tmp_path: Path
) -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    malformed = [
        "",
        "garbage",
        f"00-{trace}-{span}",
        f"00-{'0' * 32}-{span}-01",
        f"00-{trace}-{'0' * 16}-01",
        f"00-{trace.upper()}-{span}-01",
        f"ff-{trace}-{span}-01",
        f"00-{trace}-{span}-01" * 300,
        f"00-{trace}-{span}-0\u0661",
    ]
    requests = [(f"bad-{number}", header) for number, header in enumerate(malformed)]
    requests += [("good", f"00-{trace}-{span}-01"), ("quiet", f"00-{trace}-{span}-00")]
    assert book(backend, tmp_path, requests)["failures"] == 0
    spans = {read_text(one, "llmprism.request.id"): one for one in list_requests(backend)}
    assert spans.keys() == {f"bad-{number}" for number in range(len(malformed))} | {"good"}
    assert (spans["good"].trace_id.hex(), spans["good"].parent_span_id.hex()) == (trace, span)
    for number in range(len(malformed)):
        assert not spans[f"bad-{number}"].parent_span_id
        assert spans[f"bad-{number}"].trace_id.hex() not in {trace, "0" * 32}


def test_ten_thousand_waiting_requests_are_each_told_once(backend: OtlpServer, tmp_path: Path) -> None:
    requests = [(f"req-{number}", "") for number in range(10_000)]
    said = book(backend, tmp_path, requests, WAITING)
    assert (said["failures"], said["dropped"], said["steps_off"]) == (0, 0, False)
    told = [read_text(span, "llmprism.request.id") for span in list_requests(backend)]
    assert sorted(told) == sorted(name for name, _ in requests)
    points = [p for one in backend.received(Signal.METRICS) for p in read_gauge(one.payload, "waiting")]
    assert max(point.as_double for point in points) > 5_000


def read_gauge(payload: bytes, state: str) -> list[Any]:
    resources = ExportMetricsServiceRequest.FromString(payload).resource_metrics
    metrics = [metric for rm in resources for scope in rm.scope_metrics for metric in scope.metrics]
    points = [
        point for metric in metrics if metric.name == ENGINE_REQUESTS for point in metric.gauge.data_points
    ]
    return [point for point in points if point.attributes[0].value.string_value == state]


@pytest.mark.parametrize(
    "reply",
    [Stall(), Refuse(grpc.StatusCode.UNAVAILABLE), Refuse(grpc.StatusCode.INVALID_ARGUMENT, http_status=400)],
    ids=["slow", "down", "rejecting"],
)
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_endpoint_that_does_not_take_it_costs_the_engine_nothing(
    start_engine: Any, backend: OtlpServer, reply: Reply, protocol: str
) -> None:
    backend.follow(then=reply)
    case = start_engine(*SHORT, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
    assert case.process.wait(timeout=120) == 0, case.log
    assert sum(line.get("event") == "ended" for line in case.read_book()) == 40
    case.wait_for_exporter(case.summary["exporter_pid"])
    assert "Traceback" not in case.log
    assert list((case.folder / "ledger").glob("*.ledger")), "the ledger stays on the node"


def test_child_with_a_clean_environment_runs_as_without_us() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLEAN_CHILD], env={}, capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("served\n", "")


def test_child_whose_run_is_over_says_once_that_it_is_off(tmp_path: Path) -> None:
    environment = {"OTEL_LLMPRISM_MODE": "sentinel", "OTEL_LLMPRISM_RUN_FOLDER": str(tmp_path / "gone")}
    done = subprocess.run(
        [sys.executable, "-c", CLEAN_CHILD],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "served\n"
    assert len(done.stderr.splitlines()) == 1
    assert "llmprism is off in this process" in done.stderr


def test_forked_child_of_a_running_engine_leaves_its_records_alone(
    backend: OtlpServer, tmp_path: Path
) -> None:
    script = BOOKING.replace(
        "requests = json.load(sys.stdin)",
        "import os\nrequests = json.load(sys.stdin)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    run.requests.record_arrival('child', time.monotonic_ns(), '')\n"
        "    os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0",
    )
    assert script != BOOKING
    assert book(backend, tmp_path, [("parent", "")], script)["failures"] == 0
    assert [read_text(span, "llmprism.request.id") for span in list_requests(backend)] == ["parent"]
