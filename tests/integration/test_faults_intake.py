# Bad and odd requests through the whole running processor, with a good one after each: every good one is at
# the backend once, odd but well framed ones too and unchanged, the rest is refused and counted.
import contextlib
import gzip
import http.client
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig
from otel_llmprism.exporters.otlp_client_result import SendStatus
from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.numbered_load import build_numbered_request, count_numbers
from otel_llmprism.testing.otlp_server import OtlpServer
from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Program, Programs

MIB = 1 << 20
SEED = 4
FLIPS, CUTS, BAD_IDS, HANG_UPS = 150, 50, 5, 10
FLIPPED = "flipped"
IDS = (b"t" * 16, b"s" * 8)
# Held and stamped: what is damaged goes through every stage that edits, not only past them.
EDITED = ("numbered", FLIPPED)
STAGES = {
    "hold": {"span_names": list(EDITED), "duration": "100ms"},
    "stamp": {"span_names": list(EDITED), "attributes": {"stamped": True}},
}


@dataclass(frozen=True)
class Running:
    setup: ProcessorSetup
    backend: OtlpServer
    program: Program
    client: OtlpClient

    def send(self, payload: bytes, signal: Signal = Signal.TRACES) -> SendStatus:
        result = self.client.send(signal, payload, 60)
        print(result.status.value, result.message)  # noqa: T201 - shown when a test fails
        return result.status


@pytest.fixture(params=["grpc", "http"])
def running(request: pytest.FixtureRequest, programs: Programs, tmp_path: Path) -> Iterator[Running]:
    with OtlpServer() as backend:
        setup = ProcessorSetup(tmp_path, backend.grpc_endpoint, processors=STAGES)
        program = setup.start(programs).await_port(setup.grpc_port).await_port(setup.http_port)
        port = setup.grpc_port if request.param == "grpc" else setup.http_port
        client = OtlpClient(OtlpClientConfig(endpoint=f"{request.param}://127.0.0.1:{port}"))
        yield Running(setup, backend, program, client)
        client.close()


def build_field(number: int, body: bytes) -> bytes:
    size, length = len(body), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + body


def build_span_request(fields: bytes) -> bytes:
    """Return a request with one span of good ids and these fields."""
    ids = build_field(1, IDS[0]) + build_field(2, IDS[1])
    return build_field(1, build_field(2, build_field(2, ids + fields)))


def build_rich_request(name: str) -> bytes:
    """Return one with everything that a span can have."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add(schema_url="https://example.org/1")
    resource.resource.attributes.add(key="service.name").value.string_value = name
    scope = resource.scope_spans.add()
    scope.scope.name = name
    for number in range(3):
        span = scope.spans.add(name=name, trace_id=IDS[0], span_id=bytes([number + 1]) * 8)
        span.attributes.add(key="list").value.array_value.values.add().double_value = 0.5
        span.events.add(name=name, time_unix_nano=1).attributes.add(key="k").value.bool_value = True
        span.links.add(trace_id=IDS[0], span_id=IDS[1])
        span.status.code = Status.STATUS_CODE_ERROR
    return request.SerializeToString()


def build_odd_times(start_ns: int, end_ns: int) -> bytes:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name="odd")
    span.trace_id, span.span_id = IDS
    span.start_time_unix_nano, span.end_time_unix_nano = start_ns, end_ns
    return request.SerializeToString()


def build_nested(levels: int) -> bytes:
    """Return a span whose attribute is a list in a list, `levels` deep."""
    value = b""
    for _ in range(levels):
        value = build_field(5, build_field(1, value))
    return build_span_request(build_field(9, build_field(2, value)))


def list_odd_requests() -> list[bytes]:
    """What is unusual and must pass as it came."""
    last_ns = (1 << 64) - 1
    return [
        *(build_odd_times(0, 0), build_odd_times(last_ns, last_ns), build_odd_times(last_ns, 1)),
        build_span_request(build_field(5, b"\xff\xfe no UTF-8 \x80")),
        build_span_request(build_field(9, build_field(1, b"k")) * 1_000_000),
        build_span_request(b"") + build_field(15, b"a field of tomorrow"),
        build_nested(20),
        build_rich_request("twice") * 2,  # the same ids twice in one request
        build_rich_request("twice") * 2,
        build_span_request(b""),
    ]


def read_good(running: Running) -> dict[int, int]:
    """Return how often each good number arrived; what was damaged may be no protobuf to others."""
    received = running.backend.received(Signal.TRACES)
    return dict(count_numbers(one for one in received if is_good(one.payload)))


def is_good(payload: bytes) -> bool:
    return b"numbered" in payload and FLIPPED.encode() not in payload


def check_alive_and_stop(running: Running, good: int) -> None:
    """Everything good is there exactly once, and the processor ends in order without having stumbled."""
    assert running.program.process.poll() is None
    assert running.program.stop() == 0
    assert read_good(running) == dict.fromkeys(range(good), 1)
    log = running.program.read_log()
    assert "Traceback" not in log
    assert "stopped: nothing left" in log


def test_odd_requests_pass_as_they_came(running: Running) -> None:
    odd = list_odd_requests()
    for number, payload in enumerate(odd):
        assert running.send(payload) is SendStatus.DELIVERED
        assert running.send(build_numbered_request(number)) is SendStatus.DELIVERED
    assert running.setup.sum_counter("llmprism_intake_invalid_utf8_total", signal="traces") == 1
    check_alive_and_stop(running, len(odd))
    arrived = [one.payload for one in running.backend.received() if not is_good(one.payload)]
    assert sorted(arrived) == sorted(odd)


def test_cut_and_flipped_requests_are_refused_or_passed_and_cost_only_themselves(running: Running) -> None:
    rng = random.Random(SEED)
    whole = build_rich_request(FLIPPED)
    short_id = build_span_request(build_field(2, b"short"))  # the later of two counts
    damaged = [whole[: rng.randrange(1, len(whole))] for _ in range(CUTS)]
    for _ in range(FLIPS):
        flipped = bytearray(whole)
        flipped[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        damaged.append(bytes(flipped))
    damaged += [whole + short_id] * BAD_IDS
    outcomes = []
    for number, payload in enumerate(damaged):
        outcomes.append(running.send(payload))
        assert running.send(build_numbered_request(number)) is SendStatus.DELIVERED
    assert set(outcomes[:CUTS]) == {SendStatus.PERMANENT}, "a cut request is not whole"
    assert set(outcomes) <= {SendStatus.PERMANENT, SendStatus.DELIVERED, SendStatus.PARTIAL}
    refused = outcomes.count(SendStatus.PERMANENT)
    assert running.setup.sum_counter("llmprism_intake_refused_total", cause="malformed") == refused
    assert set(outcomes[-BAD_IDS:]) == {SendStatus.PARTIAL}
    rejected = running.setup.sum_counter("llmprism_lost_total", cause="bad_id")
    assert rejected >= outcomes.count(SendStatus.PARTIAL)
    check_alive_and_stop(running, len(damaged))
    cured = [one.payload for one in running.backend.received() if not is_good(one.payload)]
    assert len(cured) >= outcomes.count(SendStatus.DELIVERED) + BAD_IDS
    assert not any(b"short" in payload for payload in cured)


def test_nested_and_oversized_requests_are_refused_and_counted(running: Running) -> None:
    assert running.send(build_nested(20_000)) is SendStatus.PERMANENT
    assert running.send(build_numbered_request(0)) is SendStatus.DELIVERED
    assert running.send(build_span_request(build_field(5, b"x" * (17 * MIB)))) is SendStatus.TOO_LARGE
    assert running.send(build_numbered_request(1)) is SendStatus.DELIVERED
    assert running.setup.sum_counter("llmprism_intake_refused_total", cause="malformed") == 1
    assert running.setup.sum_counter("llmprism_intake_refused_total") == 2
    check_alive_and_stop(running, 2)


def test_ledger_records_that_are_none_are_counted_and_logs_beside_them_pass(running: Running) -> None:
    rng = random.Random(SEED)
    bodies = [b"", b"x", rng.randbytes(10_000), b"\xff" * MIB]
    for seq, body in enumerate(bodies):
        assert running.send(build_ledger_request(seq, body), Signal.LOGS) is SendStatus.DELIVERED
        assert running.send(build_numbered_request(seq)) is SendStatus.DELIVERED
    (arrived, *others) = wait_for_logs(running, len(bodies))
    assert all(one == arrived for one in others)
    (resource,) = ExportLogsServiceRequest.FromString(arrived).resource_logs
    assert [scope.scope.name for scope in resource.scope_logs] == ["application"]
    assert running.setup.sum_counter("llmprism_lost_total", stage="ledger") >= len(bodies)
    check_alive_and_stop(running, len(bodies))


def build_ledger_request(seq: int, body: bytes) -> bytes:
    """Return an application's log record with a ledger record beside it."""
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    for key, text in (("llmprism.engine.id", "e"), ("llmprism.engine.run", "00" * 16)):
        resource.resource.attributes.add(key=key).value.string_value = text
    other = resource.scope_logs.add()
    other.scope.name = "application"
    other.log_records.add().body.string_value = "hello"
    scope = resource.scope_logs.add()
    scope.scope.name = "otel_llmprism.ledger"
    record = scope.log_records.add(event_name="llmprism.ledger")
    record.body.bytes_value = body
    record.attributes.add(key="llmprism.ledger.node").value.string_value = "n"
    record.attributes.add(key="llmprism.ledger.seq").value.int_value = seq
    return request.SerializeToString()


def wait_for_logs(running: Running, count: int) -> list[bytes]:
    running.backend.wait_for(count * 2)  # a good trace request each
    return [one.payload for one in running.backend.received(Signal.LOGS)]


def post(port: int, path: str, body: bytes, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, body, named)
        return connection.getresponse().status


def test_http_misuse_and_clients_that_hang_up_cost_nobody_else(running: Running) -> None:
    port, good = running.setup.http_port, build_numbered_request(0)
    proto = {"Content_Type": "application/x-protobuf"}
    bomb = gzip.compress(bytes(200 * MIB), 1)
    assert post(port, "/v1/traces", good, Content_Type="text/plain") == 415
    assert post(port, "/v1/nothing", good, **proto) == 404
    assert post(port, "/v1/traces", good, Content_Encoding="gzip", **proto) == 400
    assert post(port, "/v1/traces", bomb, Content_Encoding="gzip", **proto) == 413
    assert post(port, "/v1/traces", b'{"resourceSpans": [' * 5000, Content_Type="application/json") == 400
    for target in (port, running.setup.grpc_port, running.setup.health_port):
        for _ in range(HANG_UPS):
            with socket.create_connection(("127.0.0.1", target)) as half:
                half.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
    assert running.send(good) is SendStatus.DELIVERED
    check_alive_and_stop(running, 1)
