# What is peculiar to HTTP: content types, encodings, JSON, sizes without a length, slow and rude clients.
import contextlib
import gzip
import http.client
import json
import socket
import ssl
from typing import Any

import grpc
import pytest
import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.ports import Outcome, Verdict
from otel_llmprism.receivers.asgi_listener import BoundedH11Protocol
from otel_llmprism.receivers.limits import MIB, IntakeLimits
from otel_llmprism.receivers.tls import ServerTlsConfig
from otel_llmprism.testing.certificates import CertificateFiles
from otel_llmprism.testing.ingresses import RecordingIngress

PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
SPAN = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "json"}


def ask(
    port: int, method: str, path: str, body: Any, headers: dict[str, str], **options: Any
) -> tuple[http.client.HTTPResponse, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, body, headers, **options)
        response = connection.getresponse()
        return response, response.read()


def build_json(span: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def test_json_request_arrives_as_protobuf_and_is_answered_in_json(http_intake: Any) -> None:
    ingress = RecordingIngress()
    http_intake.start(ingress)
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    response, body = ask(http_intake.port, "POST", "/v1/traces", build_json(SPAN), headers)
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {}
    [(signal, payload)] = ingress.offers
    assert signal is Signal.TRACES
    span = ExportTraceServiceRequest.FromString(payload).resource_spans[0].scope_spans[0].spans[0]
    assert span.trace_id.hex() == SPAN["traceId"]
    assert span.name == "json"


def test_json_with_a_bad_id_length_is_a_partial_success_in_json(http_intake: Any) -> None:
    http_intake.start(RecordingIngress())
    request = build_json(SPAN | {"spanId": "eee1"})
    response, body = ask(http_intake.port, "POST", "/v1/traces", request, JSON)
    assert response.status == 200
    assert json.loads(body)["partialSuccess"]["rejectedSpans"] == "1"


@pytest.mark.parametrize("text", [b"{", b'{"resourceSpans": 7}', b"[" * 100_000, b"\xff", b'"\\ud800"'])
def test_malformed_json_is_refused_in_json(http_intake: Any, text: bytes) -> None:
    ingress = RecordingIngress()
    http_intake.start(ingress)
    response, body = ask(http_intake.port, "POST", "/v1/traces", text, JSON)
    assert (response.status, json.loads(body)["code"]) == (400, 3)
    assert ingress.offers == []


def test_refusal_in_json_tells_when_to_come_again(http_intake: Any) -> None:
    http_intake.start(RecordingIngress(Verdict(Outcome.BUSY, 0.2, "full")))
    response, body = ask(http_intake.port, "POST", "/v1/traces", build_json(SPAN), JSON)
    assert (response.status, response.headers["Retry-After"]) == (429, "1")
    assert json.loads(body) == {"code": 8, "message": "full"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"Content-Type": "text/plain"}, 415),
        (PROTOBUF | {"Content-Encoding": "br"}, 415),
        (PROTOBUF | {"Content-Encoding": "gzip, gzip"}, 415),
        (PROTOBUF | {"Content-Encoding": "identity"}, 200),
    ],
)
def test_content_that_is_not_ours_is_refused(http_intake: Any, headers: dict[str, str], status: int) -> None:
    http_intake.start(RecordingIngress())
    response, body = ask(http_intake.port, "POST", "/v1/traces", b"", headers)
    assert response.status == status
    assert (b"send Content-" in body) == (status == 415)


def test_wrong_method_and_wrong_path_are_told(http_intake: Any) -> None:
    http_intake.start(RecordingIngress())
    response, _ = ask(http_intake.port, "GET", "/v1/traces", None, {})
    assert (response.status, response.headers["Allow"]) == (405, "POST")
    response, body = ask(http_intake.port, "POST", "/v2/traces", b"", PROTOBUF)
    assert response.status == 404
    assert b"/v1/traces" in body


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_bomb_is_refused(http_intake: Any, encoding: str) -> None:
    ingress = RecordingIngress()
    http_intake.start(ingress)
    compress = gzip.compress if encoding == "gzip" else zstandard.compress
    response, _ = ask(
        http_intake.port,
        "POST",
        "/v1/traces",
        compress(bytes(64 * MIB)),
        PROTOBUF | {"Content-Encoding": encoding},
    )
    assert response.status == 413
    assert ingress.offers == []


@pytest.mark.parametrize("encoding", ["", "gzip", "zstd"])
def test_json_has_a_limit_of_its_own_and_the_refusal_says_the_mend(http_intake: Any, encoding: str) -> None:
    ingress = RecordingIngress()
    http_intake.start(ingress, max_json_bytes=1000)
    compress: Any = {"": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}[encoding]
    headers = JSON | ({"Content-Encoding": encoding} if encoding else {})
    small, large = build_json(SPAN), build_json(SPAN | {"name": "n" * 1000})
    response, _ = ask(http_intake.port, "POST", "/v1/traces", compress(small), headers)
    assert response.status == 200
    response, body = ask(http_intake.port, "POST", "/v1/traces", compress(large), headers)
    assert response.status == 413
    assert "or protobuf, or raise max_json_bytes" in json.loads(body)["message"]
    request = ExportTraceServiceRequest.FromString(ingress.offers[0][1])
    request.resource_spans[0].scope_spans[0].spans[0].name = "n" * 1000
    response, _ = ask(http_intake.port, "POST", "/v1/traces", request.SerializeToString(), PROTOBUF)
    assert response.status == 200


def test_json_limit_is_never_above_that_of_all_requests(http_intake: Any) -> None:
    http_intake.start(RecordingIngress(), limits=IntakeLimits(max_request_bytes=100))
    response, _ = ask(http_intake.port, "POST", "/v1/traces", build_json(SPAN), JSON)
    assert response.status == 413


def test_zstd_request_arrives_decompressed(http_intake: Any, traces: ExportTraceServiceRequest) -> None:
    ingress = RecordingIngress()
    http_intake.start(ingress)
    body = zstandard.compress(traces.SerializeToString())
    response, _ = ask(http_intake.port, "POST", "/v1/traces", body, PROTOBUF | {"Content-Encoding": "zstd"})
    assert response.status == 200
    assert ingress.offers == [(Signal.TRACES, traces.SerializeToString())]


def test_body_that_is_not_what_its_encoding_says_is_refused(http_intake: Any) -> None:
    http_intake.start(RecordingIngress())
    headers = PROTOBUF | {"Content-Encoding": "gzip"}
    response, _ = ask(http_intake.port, "POST", "/v1/traces", b"not gzip", headers)
    assert response.status == 400


def test_chunked_request_is_taken_in_and_bounded(http_intake: Any, traces: ExportTraceServiceRequest) -> None:
    ingress = RecordingIngress()
    http_intake.start(ingress, limits=IntakeLimits(max_request_bytes=10_000))
    payload = traces.SerializeToString()
    pieces = iter([payload[:7], payload[7:]])
    response, _ = ask(http_intake.port, "POST", "/v1/traces", pieces, PROTOBUF, encode_chunked=True)
    assert response.status == 200
    assert ingress.offers == [(Signal.TRACES, payload)]
    chunks = iter([bytes(1000)] * 11)
    response, _ = ask(http_intake.port, "POST", "/v1/traces", chunks, PROTOBUF, encode_chunked=True)
    assert response.status == 413


def test_length_beyond_the_limit_is_refused_before_the_body_is_sent(http_intake: Any) -> None:
    http_intake.start(RecordingIngress())
    with socket.create_connection(("127.0.0.1", http_intake.port), timeout=20) as client:
        head = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
        client.sendall(f"{head}Content-Length: 99999999999\r\n\r\n".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_body_that_trickles_is_given_up_in_time(http_intake: Any) -> None:
    http_intake.start(RecordingIngress(), limits=IntakeLimits(max_concurrent=1, receive_timeout_s=0.2))
    with socket.create_connection(("127.0.0.1", http_intake.port), timeout=20) as client:
        head = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
        client.sendall(f"{head}Content-Length: 10\r\n\r\n12345".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 408 ")
        assert http_intake.send(b"").code is grpc.StatusCode.OK


def test_headers_that_trickle_are_given_up_in_time(http_intake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedH11Protocol, "header_timeout_s", 0.1)
    http_intake.start(RecordingIngress())
    for opening in (b"", b"POST /v1/traces HTTP/1.1\r\nHost"):
        with socket.create_connection(("127.0.0.1", http_intake.port), timeout=20) as client:
            client.sendall(opening)
            assert client.recv(1) == b""


def test_connections_are_bounded(http_intake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedH11Protocol, "max_connections", 1)
    http_intake.start(RecordingIngress())
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", http_intake.port, timeout=20)) as first:
        first.request("POST", "/v1/traces", b"", PROTOBUF)
        assert first.getresponse().read() == b""
        with (
            socket.create_connection(("127.0.0.1", http_intake.port), timeout=20) as second,
            contextlib.suppress(ConnectionResetError),
        ):
            assert second.recv(1) == b""
        first.request("POST", "/v1/traces", b"", PROTOBUF)
        assert first.getresponse().status == 200


@pytest.mark.parametrize("cut", [30, 150])
def test_client_that_hangs_up_leaves_the_receiver_serving(
    http_intake: Any, traces: ExportTraceServiceRequest, cut: int
) -> None:
    ingress = RecordingIngress()
    http_intake.start(ingress)
    payload = traces.SerializeToString()
    head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\n"
    whole = f"{head}Content-Type: application/x-protobuf\r\n\r\n".encode() + payload
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", http_intake.port)) as client:
            client.sendall(whole[:cut])
    assert http_intake.send(payload).code is grpc.StatusCode.OK
    assert ingress.offers == [(Signal.TRACES, payload)]


def test_garbage_on_the_port_leaves_the_receiver_serving(http_intake: Any) -> None:
    http_intake.start(RecordingIngress())
    with socket.create_connection(("127.0.0.1", http_intake.port), timeout=20) as client:
        client.sendall(bytes(range(256)) * 4)
        assert client.recv(4096).startswith(b"HTTP/1.1 400 ")
    assert http_intake.send(b"").code is grpc.StatusCode.OK


def test_mutual_tls_admits_only_clients_of_the_ca(
    http_intake: Any, traces: ExportTraceServiceRequest, certificates: CertificateFiles
) -> None:
    ingress = RecordingIngress()
    tls = ServerTlsConfig(
        cert_file=certificates.server_cert,
        key_file=certificates.server_key,
        client_ca_file=certificates.ca,
    )
    http_intake.start(ingress, tls=tls)
    known = ssl.create_default_context(cafile=certificates.ca)
    known.load_cert_chain(certificates.client_cert, certificates.client_key)
    stranger = ssl.create_default_context(cafile=certificates.ca)

    def ask_securely(context: ssl.SSLContext) -> int:
        connection = http.client.HTTPSConnection("127.0.0.1", http_intake.port, timeout=20, context=context)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/traces", traces.SerializeToString(), PROTOBUF)
            return connection.getresponse().status

    assert ask_securely(known) == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask_securely(stranger)
    assert len(ingress.offers) == 1
