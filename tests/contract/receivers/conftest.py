# Starts both receivers on loopback and speaks to them as a client would, each in its own protocol.
import http.client
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import KeySelection
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ports import Ingress
from otel_llmprism.receivers.otlp_grpc import OtlpGrpcConfig, OtlpGrpcReceiver
from otel_llmprism.receivers.otlp_http import OtlpHttpConfig, OtlpHttpReceiver
from otel_llmprism.testing.certificates import CertificateFiles, write_certificates

SERVICES = {
    Signal.TRACES: "trace.v1.Trace",
    Signal.LOGS: "logs.v1.Logs",
    Signal.METRICS: "metrics.v1.Metrics",
}
STOP_WITHIN_NS = 5_000_000_000


@dataclass
class Reply:
    """What a client saw, in the words of gRPC."""

    code: grpc.StatusCode
    message: str = ""
    body: bytes = b""
    retry_after_s: float | None = None


HTTP_CODES = {
    200: grpc.StatusCode.OK,
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class Receiver(Protocol):
    port: int

    def start(self) -> None: ...

    def stop(self, deadline_ns: int) -> None: ...


@dataclass
class Intake:
    kind: str
    stop_all: list[Callable[[], None]] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    port: int = 0

    @property
    def stage(self) -> str:
        return f"otlp_{self.kind}"

    def build(self, ingress: Ingress, **options: Any) -> Receiver:
        options = {"endpoint": "127.0.0.1:0"} | options
        if self.kind == "grpc":
            return OtlpGrpcReceiver(OtlpGrpcConfig(**options), ingress, self.counters, KeySelection(()))
        return OtlpHttpReceiver(OtlpHttpConfig(**options), ingress, self.counters, KeySelection(()))

    def start(self, ingress: Ingress, **options: Any) -> Receiver:
        receiver = self.build(ingress, **options)
        receiver.start()
        self.stop_all.append(lambda: receiver.stop(time.monotonic_ns() + STOP_WITHIN_NS))
        self.port = receiver.port
        return receiver

    def send(
        self, payload: bytes, signal: Signal = Signal.TRACES, headers: dict[str, str] | None = None
    ) -> Reply:
        if self.kind == "grpc":
            return send_grpc(self.port, payload, signal, headers or {})
        return send_http(self.port, payload, signal, headers or {})


def send_grpc(port: int, payload: bytes, signal: Signal, headers: dict[str, str]) -> Reply:
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        export = channel.unary_unary(f"/opentelemetry.proto.collector.{SERVICES[signal]}Service/Export")
        try:
            body = export(payload, metadata=tuple((k.lower(), v) for k, v in headers.items()), timeout=20)
        except grpc.RpcError as error:
            return Reply(error.code(), error.details(), b"", read_retry_info(error))
        return Reply(grpc.StatusCode.OK, "", body)


def read_retry_info(error: Any) -> float | None:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            assert status.code == error.code().value[0]
            assert status.message == error.details()
            retry = error_details_pb2.RetryInfo()
            assert status.details[0].Unpack(retry)
            return float(retry.retry_delay.ToNanoseconds() / 1e9)
    return None


def send_http(port: int, payload: bytes, signal: Signal, headers: dict[str, str]) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        all_headers = {"Content-Type": "application/x-protobuf"} | headers
        connection.request("POST", f"/v1/{signal}", payload, all_headers)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    code = HTTP_CODES[response.status]
    if code is grpc.StatusCode.OK:
        return Reply(code, "", body)
    status = status_pb2.Status.FromString(body)
    assert status.code == code.value[0]
    after = response.headers.get("Retry-After")
    return Reply(code, status.message, b"", None if after is None else float(after))


@pytest.fixture(params=["grpc", "http"])
def intake(request: pytest.FixtureRequest) -> Iterator[Intake]:
    intake = Intake(request.param)
    yield intake
    for stop in intake.stop_all:
        stop()


@pytest.fixture
def grpc_intake() -> Iterator[Intake]:
    intake = Intake("grpc")
    yield intake
    for stop in intake.stop_all:
        stop()


@pytest.fixture
def http_intake() -> Iterator[Intake]:
    intake = Intake("http")
    yield intake
    for stop in intake.stop_all:
        stop()


@pytest.fixture
def traces() -> ExportTraceServiceRequest:
    """Three good spans of one scope."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for index in range(3):
        span = scope.spans.add(name=f"span {index}", trace_id=b"t" * 16, span_id=bytes([index + 1]) * 8)
        span.attributes.add(key="n").value.int_value = index
    return request


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return write_certificates(Path(tmp_path_factory.mktemp("certificates")))
