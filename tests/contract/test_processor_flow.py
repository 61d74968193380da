# The whole processor in this process: an SDK nobody here wrote -> processor -> a recording backend.
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.exporters.ledger_chunks import encode_columns
from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig
from otel_llmprism.exporters.otlp_client_result import SendStatus
from otel_llmprism.exporters.otlp_logs import LedgerRecord, encode_ledger_records
from otel_llmprism.model.signals import Signal
from otel_llmprism.native.ledger_layout import ChunkAnchor
from otel_llmprism.native.ledger_schema import COLUMNS, Table
from otel_llmprism.pipeline.dead_letters import read_dead_letters
from otel_llmprism.semconv.delivery import CONFIG_FAILING, CONSUMED
from otel_llmprism.semconv.ledger_intake import LEDGER_CHUNKS, LEDGER_LAST_STEP_SEEN, LEDGER_STEPS
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.processor import Processor
from otel_llmprism.service.settings import ProcessorConfig, read_processor_config
from otel_llmprism.testing.otlp_server import OtlpServer, Refuse, Stall

ANY_PORT = {"endpoint": "127.0.0.1:0"}


def build_config(tmp_path: Path, backend: str, **sections: Any) -> ProcessorConfig:
    return read_processor_config(
        {
            "receivers": {"otlp": {"protocols": {"grpc": ANY_PORT, "http": ANY_PORT}}},
            "exporters": {
                "otlp": {"endpoint": backend, "retry": {"initial_interval": "10ms", "max_interval": "50ms"}}
            },
            "log": {"directory": str(tmp_path / "log")},
            "health": ANY_PORT,
            **sections,
        },
        "test",
    )


def build_chunk(first_step: int, steps: int) -> bytes:
    numbers = np.arange(first_step, first_step + steps, dtype=np.uint64)
    values = {column.key: np.zeros(steps, np.uint64) for column in COLUMNS if column.table == Table.STEPS}
    return encode_columns({**values, "steps.step": numbers}, ChunkAnchor(0, 2, 1, 1))


class Running:
    """A started processor and a client for it."""

    def __init__(self, config: ProcessorConfig) -> None:
        self.processor = Processor(config, {})
        self.processor.start()
        self.client = OtlpClient(OtlpClientConfig(endpoint=self.grpc_endpoint))

    @property
    def grpc_endpoint(self) -> str:
        return f"grpc://127.0.0.1:{self.processor.find_port('otlp_grpc')}"

    def stop(self) -> str:
        self.client.close()
        return self.processor.stop()

    def fetch(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.processor.health.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def backend() -> Iterator[OtlpServer]:
    with OtlpServer() as server:
        yield server


def build_request(*names: str) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for index, name in enumerate(names, 1):
        scope.spans.add(name=name, span_id=index.to_bytes(8, "big"), trace_id=b"t" * 16)
    return request.SerializeToString() + b"\xaa\x06\x03new"  # an unknown field 101 at the end


def read_names(server: OtlpServer) -> list[str]:
    return [
        span.name
        for received in server.received(Signal.TRACES)
        for resource in ExportTraceServiceRequest.FromString(received.payload).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def build_ledger_request(*, seq: int = 4, body: bytes = b"junk", other_log: str = "") -> bytes:
    source = {"llmprism.engine.id": "engine-1", "llmprism.engine.run": "0" * 32}
    record = LedgerRecord("llmprism.ledger", body, version=0, node="node", seq=seq, time_ns=1)
    request = ExportLogsServiceRequest.FromString(encode_ledger_records(source, [record]))
    if other_log:
        other = request.resource_logs[0].scope_logs.add()
        other.scope.name = other_log
        other.log_records.add().body.string_value = "hello"
    return request.SerializeToString()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("durability", ["memory", "process"])
def test_spans_of_the_sdk_arrive(tmp_path: Path, backend: OtlpServer, protocol: str, durability: str) -> None:
    running = Running(build_config(tmp_path, backend.grpc_endpoint, durability=durability))
    port = running.processor.find_port(f"otlp_{protocol}")
    exporter = (
        GrpcSpanExporter(endpoint=f"http://127.0.0.1:{port}", insecure=True)
        if protocol == "grpc"
        else HttpSpanExporter(endpoint=f"http://127.0.0.1:{port}/v1/traces")
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for index in range(5):
        provider.get_tracer("test").start_span(f"span {index}").end()
    backend.wait_for(5)
    provider.shutdown()
    assert running.stop() == "nothing left"
    assert sorted(read_names(backend)) == [f"span {index}" for index in range(5)]


@pytest.mark.parametrize("signal", list(Signal))
def test_bytes_pass_as_they_came(tmp_path: Path, backend: OtlpServer, signal: Signal) -> None:
    running = Running(build_config(tmp_path, backend.http_endpoint))
    payload = build_request("a", "b") if signal is Signal.TRACES else b"\x0a\x00\xaa\x06\x03new"
    if signal is not Signal.TRACES:  # a request needs a record to go on: resource, scope, record
        payload = b"\x0a\x04\x12\x02\x12\x00\xaa\x06\x03new"
    assert running.client.send(signal, payload).status is SendStatus.DELIVERED
    (received,) = backend.wait_for(1)
    assert (received.signal, received.payload) == (signal, payload)
    running.stop()


def test_stamp_appends_to_what_matches(tmp_path: Path, backend: OtlpServer) -> None:
    stamp = {"span_names": ["llm*"], "attributes": {"team": "blue", "tier": 2}}
    running = Running(build_config(tmp_path, backend.grpc_endpoint, processors={"stamp": stamp}))
    running.client.send(Signal.TRACES, build_request("llm.call", "other"))
    (received,) = backend.wait_for(1)
    spans = ExportTraceServiceRequest.FromString(received.payload).resource_spans[0].scope_spans[0].spans
    assert {a.key: a.value.string_value or a.value.int_value for a in spans[0].attributes} == {
        "team": "blue",
        "tier": 2,
    }
    assert not spans[1].attributes
    running.stop()


def test_held_spans_wait_and_the_others_do_not(tmp_path: Path, backend: OtlpServer) -> None:
    hold = {"span_names": ["slow"], "duration": "1h"}
    running = Running(build_config(tmp_path, backend.grpc_endpoint, processors={"hold": hold}))
    running.client.send(Signal.TRACES, build_request("slow", "quick"))
    backend.wait_for(1)
    assert read_names(backend) == ["quick"]
    running.stop()  # a stop gives everything on
    assert sorted(read_names(backend)) == ["quick", "slow"]


def test_ledger_is_consumed_and_other_logs_pass(tmp_path: Path, backend: OtlpServer) -> None:
    running = Running(build_config(tmp_path, backend.grpc_endpoint))
    chunk = build_chunk(first_step=40, steps=3)
    for _ in range(2):
        running.client.send(Signal.LOGS, build_ledger_request(body=chunk))
    running.client.send(Signal.LOGS, build_ledger_request(seq=5, other_log="app"))
    (received,) = backend.wait_for(1)
    (resource,) = ExportLogsServiceRequest.FromString(received.payload).resource_logs
    assert [scope.scope.name for scope in resource.scope_logs] == ["app"]
    counters = running.processor.counters
    assert counters.value(LEDGER_CHUNKS, event="llmprism.ledger") == 1
    assert counters.value(LEDGER_STEPS, engine="engine-1") == 3
    assert counters.value(LEDGER_LAST_STEP_SEEN, engine="engine-1") == 42
    assert counters.value(LOST, stage="ledger", cause="duplicate") == 1
    assert counters.value(LOST, stage="ledger", cause="chunk_truncated") == 1  # the junk
    assert running.stop() == "nothing left"


def test_ledger_passes_when_asked_to(tmp_path: Path, backend: OtlpServer) -> None:
    running = Running(build_config(tmp_path, backend.grpc_endpoint, ledger={"forward": True}))
    payload = build_ledger_request(other_log="app")
    running.client.send(Signal.LOGS, payload)
    (received,) = backend.wait_for(1)
    assert received.payload == payload
    running.stop()


def test_beside_consumes_and_sends_nothing_on(tmp_path: Path, backend: OtlpServer) -> None:
    running = Running(build_config(tmp_path, backend.grpc_endpoint, mode="beside"))
    for signal in Signal:
        payload = build_request("a") if signal is Signal.TRACES else b"\x0a\x04\x12\x02\x12\x00"
        assert running.client.send(signal, payload).status is SendStatus.DELIVERED
    assert running.stop() == "nothing left"
    assert backend.received() == []
    assert sum(running.processor.counters.value(CONSUMED, signal=signal) for signal in Signal) == 3


def test_rejected_data_lies_in_the_dead_letters(tmp_path: Path, backend: OtlpServer) -> None:
    backend.follow(Refuse(grpc.StatusCode.PERMISSION_DENIED, 403, "no such tenant"))
    running = Running(build_config(tmp_path, backend.grpc_endpoint))
    running.client.send(Signal.TRACES, build_request("refused"))
    backend.wait_until_asked(1)
    running.client.send(Signal.TRACES, build_request("taken"))
    backend.wait_for(1)
    assert running.stop() == "nothing left"
    (letter,) = read_dead_letters(tmp_path / "log" / "dead-letters")
    assert letter.payload == build_request("refused")
    assert "no such tenant" in letter.cause
    assert read_names(backend) == ["taken"]


def test_backend_down_then_up_gets_everything_over_a_restart(tmp_path: Path) -> None:
    with OtlpServer() as probe:
        port = probe.grpc_port
    config = build_config(tmp_path, f"127.0.0.1:{port}", shutdown_timeout="2s")
    running = Running(config)
    for index in range(30):
        assert running.client.send(Signal.TRACES, build_request(str(index))).status is SendStatus.DELIVERED
    assert "wait in the log" in running.stop()
    with OtlpServer(grpc_port=port) as backend:
        running = Running(config)
        backend.wait_for(30)
        assert running.stop() == "nothing left"
        assert sorted(read_names(backend), key=int) == [str(index) for index in range(30)]


def test_memory_says_how_much_it_lost(tmp_path: Path, backend: OtlpServer) -> None:
    backend.follow(then=Stall())
    config = build_config(tmp_path, backend.grpc_endpoint, durability="memory", shutdown_timeout="2s")
    running = Running(config)
    running.client.send(Signal.TRACES, build_request("a", "b"))
    backend.wait_until_asked(1)
    assert running.stop() == "1 requests in flight were lost (durability: memory)"
    assert running.processor.counters.value(LOST, stage="sink", cause="shutdown") == 2


def test_health_pages_follow_the_life(tmp_path: Path, backend: OtlpServer) -> None:
    running = Running(build_config(tmp_path, backend.grpc_endpoint))
    running.client.send(Signal.TRACES, build_request("a"))
    backend.wait_for(1)
    assert running.fetch("/healthz") == (200, "ok\n")
    assert running.fetch("/readyz")[0] == 200
    status, metrics = running.fetch("/metrics")
    assert status == 200
    assert "llmprism_ingress_requests_total" in metrics
    running.stop()


def test_reload_moves_to_another_backend_without_loss(tmp_path: Path, backend: OtlpServer) -> None:
    backend.follow(then=Refuse())
    running = Running(build_config(tmp_path, backend.grpc_endpoint))
    for index in range(20):
        running.client.send(Signal.TRACES, build_request(str(index)))
    backend.wait_until_asked(1)
    with OtlpServer() as other:
        running.processor.reload(build_config(tmp_path, other.grpc_endpoint))
        other.wait_for(20)
        assert running.stop() == "nothing left"
        assert sorted(read_names(other), key=int) == [str(index) for index in range(20)]


def test_reload_changes_stages(tmp_path: Path, backend: OtlpServer) -> None:
    running = Running(build_config(tmp_path, backend.grpc_endpoint))
    running.processor.reload(build_config(tmp_path, backend.grpc_endpoint, mode="beside"))
    deadline = time.monotonic() + 20
    while not running.processor.counters.value(CONSUMED, signal="traces"):
        assert time.monotonic() < deadline
        running.client.send(Signal.TRACES, build_request("a"))
    running.stop()


def test_reload_keeps_an_unchanged_port_open(tmp_path: Path, backend: OtlpServer) -> None:
    config = build_config(tmp_path, backend.grpc_endpoint)
    running = Running(config)
    before = running.grpc_endpoint
    stamp = {"attributes": {"team": "blue"}}
    only_grpc = {"otlp": {"protocols": {"grpc": ANY_PORT}}}
    running.processor.reload(
        build_config(tmp_path, backend.grpc_endpoint, processors={"stamp": stamp}, receivers=only_grpc)
    )
    assert running.grpc_endpoint == before
    assert running.processor.find_port("otlp_http") == 0
    assert running.client.send(Signal.TRACES, build_request("a")).status is SendStatus.DELIVERED
    running.stop()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"durability": "host"}, "service.durability cannot change while the service runs"),
        ({"exporters": {"otlp": {"endpoint": "ftp://x"}}}, "unknown scheme"),
        ({"receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "nonsense"}}}}}, "is no HOST:PORT"),
    ],
)
def test_bad_reload_changes_nothing(
    tmp_path: Path, backend: OtlpServer, sections: dict[str, Any], message: str
) -> None:
    running = Running(build_config(tmp_path, backend.grpc_endpoint))
    ports = running.processor.describe_ports()
    with pytest.raises(ConfigError, match=message) as caught:
        running.processor.reload(build_config(tmp_path, backend.grpc_endpoint, **sections))
    running.processor.refuse_reload(caught.value)
    assert running.processor.describe_ports() == ports
    assert running.processor.counters.value(CONFIG_FAILING) == 1
    assert running.client.send(Signal.TRACES, build_request("a")).status is SendStatus.DELIVERED
    backend.wait_for(1)
    running.stop()


def test_reload_to_a_port_in_use_keeps_the_old_one(tmp_path: Path, backend: OtlpServer) -> None:
    running = Running(build_config(tmp_path, backend.grpc_endpoint))
    taken = {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{backend.http_port}"}}}}
    with pytest.raises(RuntimeError, match="listens there"):
        running.processor.reload(build_config(tmp_path, backend.grpc_endpoint, receivers=taken))
    assert running.client.send(Signal.TRACES, build_request("a")).status is SendStatus.DELIVERED
    assert "otlp_http" in running.processor.describe_ports()
    running.stop()


def test_port_in_use_at_start_leaves_nothing_running(tmp_path: Path, backend: OtlpServer) -> None:
    taken = {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{backend.http_port}"}}}}
    processor = Processor(build_config(tmp_path, backend.grpc_endpoint, receivers=taken), {})
    with pytest.raises(RuntimeError, match="listens there"):
        processor.start()
    again = Running(build_config(tmp_path, backend.grpc_endpoint))  # the log's lock was given back
    again.stop()


def test_no_endpoint_anywhere_is_an_error_with_the_mend(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_ENDPOINT"):
        Processor(build_config(tmp_path, ""), {})


def test_backend_may_come_from_the_environment(tmp_path: Path, backend: OtlpServer) -> None:
    endpoint = f"http://127.0.0.1:{backend.grpc_port}"
    processor = Processor(build_config(tmp_path, ""), {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
    processor.start()
    client = OtlpClient(OtlpClientConfig(endpoint=f"127.0.0.1:{processor.find_port('otlp_grpc')}"))
    client.send(Signal.TRACES, build_request("a"))
    backend.wait_for(1)
    client.close()
    processor.stop()
    assert read_names(backend) == ["a"]


def test_schema_of_the_examples_holds() -> None:
    """The file of this test is inside the shipped schema's keys."""
    schema = json.loads(
        (Path(__file__).parents[2] / "src/otel_llmprism/service/processor.schema.json").read_text()
    )
    assert {"receivers", "exporters", "log", "health", "mode", "ledger"} <= set(schema["properties"])
