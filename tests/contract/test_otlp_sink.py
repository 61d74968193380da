# The sink against real servers on loopback: slow, resetting, rejecting for ever, down.
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig
from otel_llmprism.exporters.retry import RetryConfig
from otel_llmprism.exporters.sink import InFlightConfig, OtlpSink
from otel_llmprism.exporters.sink_delivery import Delivery
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.delivery import EGRESS_FAILING
from otel_llmprism.testing.contracts import TrackedReceipt, build_batch, check_sink_contract
from otel_llmprism.testing.otlp_server import OtlpServer, Refuse, Reset, Stall

QUICK = RetryConfig(initial_interval_s=0.01, max_interval_s=0.05)


class Box:
    def __init__(self) -> None:
        self.letters: list[bytes] = []

    def write(self, signal: Signal, payload: bytes, cause: str) -> None:
        self.letters.append(payload)


def build_sink(
    endpoint: str, box: Box | None = None, counters: Counters | None = None, **bounds: int
) -> OtlpSink:
    counters = counters or Counters()
    client = OtlpClient(OtlpClientConfig(endpoint=endpoint))
    delivery = Delivery(client, QUICK, box or Box(), counters)
    return OtlpSink(InFlightConfig(**bounds), delivery, client.close, counters)


def seconds_from_now(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)


@contextlib.contextmanager
def running(sink: OtlpSink) -> Iterator[OtlpSink]:
    sink.start()
    try:
        yield sink
    finally:
        sink.stop(seconds_from_now(0))


def send_many(sink: OtlpSink, count: int) -> list[TrackedReceipt]:
    trackers = []
    for index in range(count):
        batch, tracker = build_batch(b"payload %d" % index)
        sink.send(batch)
        trackers.append(tracker)
    return trackers


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    with OtlpServer() as running_server:
        yield running_server


@pytest.fixture(params=["grpc", "http"])
def endpoint(request: pytest.FixtureRequest, server: OtlpServer) -> str:
    return server.grpc_endpoint if request.param == "grpc" else server.http_endpoint


def test_sink_keeps_the_contract(server: OtlpServer, endpoint: str) -> None:
    check_sink_contract(lambda: build_sink(endpoint), seconds_from_now(20), b"x")


def test_everything_arrives_once_and_is_settled(server: OtlpServer, endpoint: str) -> None:
    sink = build_sink(endpoint)
    sink.start()
    trackers = send_many(sink, 200)
    sink.stop(seconds_from_now(20))
    assert sorted(r.payload for r in server.received()) == sorted(b"payload %d" % i for i in range(200))
    assert all(tracker.settled == 1 for tracker in trackers)


def test_backend_that_refuses_for_a_while_gets_everything(server: OtlpServer, endpoint: str) -> None:
    server.follow(*[Refuse(grpc.StatusCode.UNAVAILABLE, 503)] * 30, *[Reset()] * 10)
    with running(build_sink(endpoint)) as sink:
        trackers = send_many(sink, 20)
        server.wait_for(20)
        sink.stop(seconds_from_now(20))
    assert {r.payload for r in server.received()} == {b"payload %d" % i for i in range(20)}
    assert all(tracker.settled == 1 for tracker in trackers)


def test_backend_that_rejects_for_ever_blocks_nothing(server: OtlpServer, endpoint: str) -> None:
    server.follow(then=Refuse(grpc.StatusCode.INVALID_ARGUMENT, 400))
    box = Box()
    sink = build_sink(endpoint, box)
    sink.start()
    trackers = send_many(sink, 50)
    sink.stop(seconds_from_now(20))
    assert len(box.letters) == 50
    assert all(tracker.settled == 1 for tracker in trackers)
    assert server.received() == []


def test_slow_backend_holds_back_at_the_count_bound(server: OtlpServer, endpoint: str) -> None:
    server.follow(then=Stall())
    with running(build_sink(endpoint, requests=3)) as sink:
        send_many(sink, 3)
        fourth = threading.Thread(target=send_many, args=(sink, 1))
        fourth.start()
        server.wait_until_asked(3)
        assert fourth.is_alive()
        server.release()
        fourth.join(20)
        assert not fourth.is_alive()
        server.wait_for(4)


def test_byte_bound_holds_back_but_one_large_request_passes(server: OtlpServer) -> None:
    server.follow(then=Stall())
    with running(build_sink(server.grpc_endpoint, max_bytes=10)) as sink:
        batch, _ = build_batch(b"x" * 1000)
        sink.send(batch)
        second = threading.Thread(target=send_many, args=(sink, 1))
        second.start()
        server.wait_until_asked(1)
        assert second.is_alive()
        server.release()
        second.join(20)
        server.wait_for(2)


def test_stop_with_a_silent_backend_ends_and_leaves_the_rest_unsettled(
    server: OtlpServer, endpoint: str
) -> None:
    server.follow(then=Stall())
    sink = build_sink(endpoint, requests=2)
    sink.start()
    trackers = send_many(sink, 2)
    blocked = threading.Thread(target=send_many, args=(sink, 1))
    blocked.start()
    server.wait_until_asked(2)
    sink.stop(seconds_from_now(0.2))
    blocked.join(20)
    assert not blocked.is_alive()
    assert all(tracker.settled == 0 for tracker in trackers)


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_stop_with_a_backend_that_is_down_ends_at_once(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    counters = Counters()
    client = OtlpClient(OtlpClientConfig(endpoint=f"{scheme}://127.0.0.1:{port}"))
    slow = RetryConfig(initial_interval_s=3600.0, max_interval_s=3600.0)
    sink = OtlpSink(InFlightConfig(), Delivery(client, slow, Box(), counters), client.close, counters)
    sink.start()
    trackers = send_many(sink, 3)
    # Waits of an hour lie beyond the deadline: no reason to sit through a minute of grace.
    sink.stop(seconds_from_now(60))
    assert all(tracker.settled == 0 for tracker in trackers)


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_backend_that_comes_back_gets_everything(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    counters = Counters()
    with running(build_sink(f"{scheme}://127.0.0.1:{port}", counters=counters)) as sink:
        trackers = send_many(sink, 5)
        while not counters.value(EGRESS_FAILING, signal="traces"):
            threading.Event().wait(0.01)
        with OtlpServer(**{f"{scheme}_port": port}) as server:
            server.wait_for(5)
            sink.stop(seconds_from_now(20))
    assert all(tracker.settled == 1 for tracker in trackers)
    assert counters.value(EGRESS_FAILING, signal="traces") == 0
