# Requests of real clients (SDKs in Python and Go, telemetrygen, the Collector) are recorded, replayed through
# the processor and recorded again: what leaves equals what came, byte for byte, apart from what was appended.
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.otlp_server import OtlpServer, Received
from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Programs, find_free_port

REPOSITORY = Path(__file__).parents[2]
STAMP = {"test.text": "stamped", "test.number": 7}
MESSAGES: dict[Signal, Any] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
}
SERVICES = {
    Signal.TRACES: "trace.v1.Trace",
    Signal.LOGS: "logs.v1.Logs",
    Signal.METRICS: "metrics.v1.Metrics",
}
UNKNOWN_FIELD = b"\xfa\x7f\x05later"  # number 2047, length-delimited: as a newer client may send
CLIENTS = ("python grpc", "python http", "go grpc", "go http", "telemetrygen", "collector")


@pytest.fixture(params=CLIENTS)
def requests(
    request: pytest.FixtureRequest, programs: Programs, tools: Mapping[str, Path], tmp_path: Path
) -> list[Received]:
    """Return what one real client sends, and the same requests with an unknown field appended."""
    with OtlpServer() as tap:
        run_client(request.param, programs, tools, tap, tmp_path)
        recorded = tap.received()
    assert {one.signal for one in recorded} == set(Signal)
    newer = [Received(r.signal, r.payload + UNKNOWN_FIELD, r.headers, r.is_grpc) for r in recorded]
    return recorded + newer


def run_client(
    client: str, programs: Programs, tools: Mapping[str, Path], tap: OtlpServer, folder: Path
) -> None:
    """Run a client to its end against the tap."""
    if client == "telemetrygen":
        for signal in ("traces", "logs", "metrics"):
            run_telemetrygen(programs, tools, signal, 20, tap.grpc_port)
        return
    if client == "collector":
        collector_port = find_free_port()
        relay = folder / "relay.yaml"
        relay.write_text(yaml.safe_dump(build_relay_config(collector_port, tap.grpc_port)))
        collector = programs.start("collector", [tools["otelcol-llmprism"], "--config", relay])
        collector.await_port(collector_port)
        run_sdk("go", "grpc", programs, tools, collector_port)
        assert collector.stop() == 0
        return
    language, protocol = client.split()
    run_sdk(language, protocol, programs, tools, tap.grpc_port if protocol == "grpc" else tap.http_port)


def run_telemetrygen(
    programs: Programs, tools: Mapping[str, Path], signal: str, count: int, port: int
) -> None:
    command = [str(tools["telemetrygen"]), signal, f"--{signal}", str(count), "--rate", "0"]
    command += ["--otlp-insecure", "--otlp-endpoint", f"127.0.0.1:{port}", "--telemetry-attributes", 'k="v"']
    assert programs.start("telemetrygen", command).wait() == 0


def run_sdk(language: str, protocol: str, programs: Programs, tools: Mapping[str, Path], port: int) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc" if protocol == "grpc" else "http/protobuf",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    python = [sys.executable, str(Path(__file__).parent / "sdk_client.py"), protocol]
    command = python if language == "python" else [str(tools["go-client"])]
    assert programs.start(f"{language}-client", command, environment).wait() == 0


def build_relay_config(port: int, target_port: int) -> dict[str, Any]:
    exporter = {"endpoint": f"127.0.0.1:{target_port}", "tls": {"insecure": True}}
    pipeline = {"receivers": ["otlp"], "exporters": ["otlp_grpc"]}
    return {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"otlp_grpc": exporter},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {signal.value: pipeline for signal in Signal},
        },
    }


@pytest.fixture
def backend() -> Iterator[OtlpServer]:
    with OtlpServer() as server:
        yield server


def replay(requests: list[Received], setup: ProcessorSetup) -> None:
    """Send each request's bytes as they are: half over gRPC, half over HTTP."""
    with grpc.insecure_channel(f"127.0.0.1:{setup.grpc_port}") as channel:
        for index, one in enumerate(requests):
            if index % 2:
                service = SERVICES[one.signal]
                export = channel.unary_unary(f"/opentelemetry.proto.collector.{service}Service/Export")
                assert export(one.payload, timeout=30) == b""
            else:
                post(one, setup.http_port)


def post(one: Received, port: int) -> None:
    url = f"http://127.0.0.1:{port}/v1/{one.signal.value}"
    headers = {"Content-Type": "application/x-protobuf"}
    with urllib.request.urlopen(urllib.request.Request(url, one.payload, headers), timeout=30) as answer:
        assert answer.status == 200


def test_bytes_of_real_clients_leave_as_they_came(
    requests: list[Received], programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    setup = ProcessorSetup(tmp_path, backend.grpc_endpoint)
    processor = setup.start(programs).await_port(setup.grpc_port).await_port(setup.http_port)
    replay(requests, setup)
    arrived = backend.wait_for(len(requests))
    assert Counter((one.signal, one.payload) for one in arrived) == Counter(
        (one.signal, one.payload) for one in requests
    )
    assert processor.stop() == 0


def test_only_the_asked_attributes_are_added_to_spans_of_real_clients(
    requests: list[Received], programs: Programs, backend: OtlpServer, tmp_path: Path
) -> None:
    stamp = {"stamp": {"span_names": ["*"], "attributes": STAMP}}
    setup = ProcessorSetup(tmp_path, backend.http_endpoint, processors=stamp)
    processor = setup.start(programs).await_port(setup.grpc_port).await_port(setup.http_port)
    replay(requests, setup)
    arrived = backend.wait_for(len(requests))
    assert Counter(take_stamps_off(one) for one in arrived) == Counter(decode(one) for one in requests)
    assert processor.stop() == 0


def take_stamps_off(one: Received) -> bytes:
    """Return the message without the stamps; every span must have had both, at its end."""
    message = MESSAGES[one.signal].FromString(one.payload)
    for resource in message.resource_spans if one.signal is Signal.TRACES else ():
        for scope in resource.scope_spans:
            for span in scope.spans:
                stamps = [span.attributes.pop(), span.attributes.pop()]
                found = {s.key: s.value.string_value or s.value.int_value for s in stamps}
                assert found == STAMP
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def decode(one: Received) -> bytes:
    encoded: bytes = MESSAGES[one.signal].FromString(one.payload).SerializeToString(deterministic=True)
    return encoded


def test_every_id_of_telemetrygen_arrives(
    programs: Programs, tools: Mapping[str, Path], backend: OtlpServer, tmp_path: Path
) -> None:
    setup = ProcessorSetup(tmp_path, backend.grpc_endpoint)
    processor = setup.start(programs).await_port(setup.grpc_port)
    sizes = {"traces": 500, "logs": 300, "metrics": 300}
    for signal, count in sizes.items():
        run_telemetrygen(programs, tools, signal, count, setup.grpc_port)
    assert processor.stop() == 0
    spans = list(walk_spans(backend.received(Signal.TRACES)))
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans) == 2 * sizes["traces"]
    assert count_records(backend, Signal.LOGS) == sizes["logs"]
    assert count_records(backend, Signal.METRICS) == sizes["metrics"]


def walk_spans(requests: list[Received]) -> Iterator[Any]:
    for one in requests:
        for resource in ExportTraceServiceRequest.FromString(one.payload).resource_spans:
            for scope in resource.scope_spans:
                yield from scope.spans


def count_records(backend: OtlpServer, signal: Signal) -> int:
    count = 0
    for one in backend.received(signal):
        message = MESSAGES[signal].FromString(one.payload)
        if signal is Signal.LOGS:
            count += sum(len(s.log_records) for r in message.resource_logs for s in r.scope_logs)
        else:
            count += sum(len(s.metrics) for r in message.resource_metrics for s in r.scope_metrics)
    return count
