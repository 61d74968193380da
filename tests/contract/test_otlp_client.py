# The client against a real server on loopback: bytes unchanged, statuses read as OTLP says.
import socket
import threading
from collections.abc import Iterator

import grpc
import pytest

from otel_llmprism.config.secret import Secret
from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import Compression, OtlpClientConfig
from otel_llmprism.exporters.otlp_client_result import SendStatus
from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.otlp_server import Accept, OtlpServer, Refuse, Reset, Stall

PAYLOAD = bytes(range(256)) * 40 + b"\xff not even protobuf"
Code = grpc.StatusCode


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    with OtlpServer() as running:
        yield running


@pytest.fixture(params=["grpc", "http"])
def client(request: pytest.FixtureRequest, server: OtlpServer) -> Iterator[OtlpClient]:
    endpoint = server.grpc_endpoint if request.param == "grpc" else server.http_endpoint
    client = OtlpClient(OtlpClientConfig(endpoint=endpoint, headers={"X-Team": Secret("blue")}))
    yield client
    client.close()


@pytest.mark.parametrize("signal", list(Signal))
def test_bytes_arrive_as_they_left(server: OtlpServer, client: OtlpClient, signal: Signal) -> None:
    assert client.send(signal, PAYLOAD).status is SendStatus.DELIVERED
    (received,) = server.wait_for(1)
    assert (received.signal, received.payload) == (signal, PAYLOAD)
    assert received.headers["x-team"] == "blue"
    assert received.headers["user-agent"].startswith("otel-llmprism/")


@pytest.mark.parametrize(
    ("transport", "compression"),
    [("grpc", Compression.GZIP), ("http", Compression.GZIP), ("http", Compression.ZSTD)],
)
def test_compressed_requests_arrive_whole(
    server: OtlpServer, transport: str, compression: Compression
) -> None:
    endpoint = server.grpc_endpoint if transport == "grpc" else server.http_endpoint
    client = OtlpClient(OtlpClientConfig(endpoint=endpoint, compression=compression))
    assert client.send(Signal.LOGS, PAYLOAD).status is SendStatus.DELIVERED
    client.close()
    (received,) = server.wait_for(1)
    assert received.payload == PAYLOAD
    if transport == "http":
        assert received.headers["content-encoding"] == compression.value


@pytest.mark.parametrize("signal", list(Signal))
def test_partial_success_tells_count_and_reason(
    server: OtlpServer, client: OtlpClient, signal: Signal
) -> None:
    server.follow(Accept(rejected_count=3, message="three are too old"))
    result = client.send(signal, PAYLOAD)
    assert (result.status, result.rejected_count) == (SendStatus.PARTIAL, 3)
    assert result.message == "three are too old"


def test_warning_without_rejection_counts_as_delivered(server: OtlpServer, client: OtlpClient) -> None:
    server.follow(Accept(message="deprecated"))
    assert client.send(Signal.LOGS, PAYLOAD).status is SendStatus.DELIVERED


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (Refuse(Code.UNAVAILABLE, 503), SendStatus.RETRYABLE),
        (Refuse(Code.DEADLINE_EXCEEDED, 504), SendStatus.RETRYABLE),
        (Refuse(Code.ABORTED, 502), SendStatus.RETRYABLE),
        (Refuse(Code.OUT_OF_RANGE, 429), SendStatus.RETRYABLE),
        (Refuse(Code.DATA_LOSS, 429), SendStatus.RETRYABLE),
        (Refuse(Code.CANCELLED, 503), SendStatus.RETRYABLE),
        (Refuse(Code.INVALID_ARGUMENT, 400), SendStatus.PERMANENT),
        (Refuse(Code.UNAUTHENTICATED, 401), SendStatus.PERMANENT),
        (Refuse(Code.PERMISSION_DENIED, 403), SendStatus.PERMANENT),
        (Refuse(Code.INTERNAL, 500), SendStatus.PERMANENT),
        (Refuse(Code.UNKNOWN, 501), SendStatus.PERMANENT),
        (Refuse(Code.FAILED_PRECONDITION, 307), SendStatus.PERMANENT),
        (Refuse(Code.RESOURCE_EXHAUSTED, 400), SendStatus.PERMANENT),
    ],
)
def test_refusals_are_read_as_the_specification_says(
    server: OtlpServer, client: OtlpClient, refusal: Refuse, expected: SendStatus
) -> None:
    server.follow(refusal)
    result = client.send(Signal.TRACES, PAYLOAD)
    assert result.status is expected
    assert "refused by the script" in result.message or result.message.startswith("HTTP ")
    assert client.send(Signal.TRACES, PAYLOAD).status is SendStatus.DELIVERED


def test_retry_information_is_honoured(server: OtlpServer, client: OtlpClient) -> None:
    server.follow(Refuse(Code.RESOURCE_EXHAUSTED, 429, retry_after_s=7.0))
    result = client.send(Signal.TRACES, PAYLOAD)
    assert (result.status, result.retry_after_s) == (SendStatus.RETRYABLE, 7.0)


def test_service_that_is_absent_is_marked(server: OtlpServer, client: OtlpClient) -> None:
    server.follow(Refuse(Code.UNIMPLEMENTED, 404))
    result = client.send(Signal.LOGS, PAYLOAD)
    assert result.status is SendStatus.PERMANENT
    assert result.is_missing_service


def test_request_over_the_servers_limit_is_too_large() -> None:
    with OtlpServer(max_request_bytes=1000) as server:
        for endpoint in (server.grpc_endpoint, server.http_endpoint):
            client = OtlpClient(OtlpClientConfig(endpoint=endpoint))
            assert client.send(Signal.TRACES, PAYLOAD).status is SendStatus.TOO_LARGE
            client.close()


def test_reset_without_an_answer_is_retryable(server: OtlpServer, client: OtlpClient) -> None:
    server.follow(Reset(), Reset())
    assert client.send(Signal.TRACES, PAYLOAD).status is SendStatus.RETRYABLE
    server.follow()
    assert client.send(Signal.TRACES, PAYLOAD).status is SendStatus.DELIVERED


def test_idle_connection_closed_by_the_server_is_not_a_failure(server: OtlpServer) -> None:
    client = OtlpClient(OtlpClientConfig(endpoint=server.http_endpoint))
    assert client.send(Signal.TRACES, PAYLOAD).status is SendStatus.DELIVERED
    server.follow(Reset())  # what a request on a connection closed meanwhile looks like
    assert client.send(Signal.TRACES, PAYLOAD).status is SendStatus.DELIVERED
    client.close()


def test_silence_ends_with_the_timeout(server: OtlpServer, client: OtlpClient) -> None:
    server.follow(Stall())
    assert client.send(Signal.TRACES, PAYLOAD, timeout_s=0.2).status is SendStatus.RETRYABLE


def test_close_ends_a_call_in_flight(server: OtlpServer, client: OtlpClient) -> None:
    server.follow(Stall())
    statuses: list[SendStatus] = []
    thread = threading.Thread(target=lambda: statuses.append(client.send(Signal.TRACES, PAYLOAD).status))
    thread.start()
    server.wait_until_asked(1)
    client.close()
    thread.join(10)
    assert statuses == [SendStatus.RETRYABLE]
    assert client.send(Signal.TRACES, PAYLOAD).status is SendStatus.RETRYABLE


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_nobody_listening_is_retryable(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = OtlpClient(OtlpClientConfig(endpoint=f"{scheme}://127.0.0.1:{port}"))
    assert client.send(Signal.TRACES, PAYLOAD, timeout_s=5).status is SendStatus.RETRYABLE
    client.close()


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_answers_that_are_no_protocol_are_retryable(scheme: str) -> None:
    """A port that speaks something else: nothing raises, nothing hangs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def babble() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 smtp.example ESMTP\r\n" * 10)

        thread = threading.Thread(target=babble)
        thread.start()
        client = OtlpClient(OtlpClientConfig(endpoint=f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"))
        assert client.send(Signal.TRACES, PAYLOAD, timeout_s=2).status is SendStatus.RETRYABLE
        client.close()
        thread.join(10)


def test_signals_may_have_their_own_backend(server: OtlpServer) -> None:
    with OtlpServer() as other:
        client = OtlpClient(
            OtlpClientConfig(endpoint=server.grpc_endpoint),
            {Signal.LOGS: OtlpClientConfig(endpoint=other.http_endpoint)},
        )
        client.send(Signal.TRACES, PAYLOAD)
        client.send(Signal.LOGS, PAYLOAD)
        client.close()
        assert [r.signal for r in server.received()] == [Signal.TRACES]
        assert [r.signal for r in other.received()] == [Signal.LOGS]
