# What is peculiar to gRPC: compression by the library, slow callers, TLS, calls that are none.
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.receivers.limits import MIB, IntakeLimits
from otel_llmprism.receivers.otlp_grpc_deadlines import ReceiveDeadlines
from otel_llmprism.receivers.tls import ServerTlsConfig
from otel_llmprism.testing.certificates import CertificateFiles
from otel_llmprism.testing.ingresses import RecordingIngress

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_call_arrives_decompressed(
    grpc_intake: Any, traces: ExportTraceServiceRequest, compression: grpc.Compression
) -> None:
    ingress = RecordingIngress()
    grpc_intake.start(ingress)
    payload = traces.SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{grpc_intake.port}", compression=compression) as channel:
        channel.unary_unary(TRACES)(payload)
    assert ingress.offers == [(Signal.TRACES, payload)]


BOMB_CLIENT = f"""
import grpc, sys
channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.max_send_message_length", -1)])
try:
    channel.unary_unary("{TRACES}")(bytes(200 << 20), compression=grpc.Compression.Gzip)
except grpc.RpcError as error:
    print(error.code().name)
"""


def read_peak_mib() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def test_compressed_bomb_is_refused_and_never_expanded(grpc_intake: Any) -> None:
    ingress = RecordingIngress()
    grpc_intake.start(ingress)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts again from here
    before_mib = read_peak_mib()
    command = [sys.executable, "-c", BOMB_CLIENT, f"127.0.0.1:{grpc_intake.port}"]
    client = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert client.stdout == "RESOURCE_EXHAUSTED\n"
    assert read_peak_mib() - before_mib < 100
    assert ingress.offers == []


def test_unknown_method_is_unimplemented(grpc_intake: Any) -> None:
    grpc_intake.start(RecordingIngress())
    with grpc.insecure_channel(f"127.0.0.1:{grpc_intake.port}") as channel:
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Import")(b"")
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_caller_that_sends_no_message_is_cut_off_and_its_place_is_free_again(
    grpc_intake: Any, traces: ExportTraceServiceRequest
) -> None:
    ingress = RecordingIngress()
    grpc_intake.start(ingress, limits=IntakeLimits(max_concurrent=1, receive_timeout_s=0.2))
    never = threading.Event()

    def send_nothing() -> Iterator[bytes]:
        never.wait(30)
        yield from ()

    with grpc.insecure_channel(f"127.0.0.1:{grpc_intake.port}") as channel:
        with pytest.raises(grpc.RpcError) as raised:
            channel.stream_unary(TRACES)(send_nothing())
        assert raised.value.code() is grpc.StatusCode.CANCELLED
        never.set()
        # The caller hears of it before the server's thread has left its place.
        assert send_until_taken(channel, traces.SerializeToString()) == b""
    assert len(ingress.offers) == 1
    assert grpc_intake.counters.value("llmprism.intake.refused", stage="otlp_grpc", cause="not_received") == 1


def send_until_taken(channel: grpc.Channel, payload: bytes) -> bytes:
    give_up_s = time.monotonic() + 30
    while True:
        try:
            return bytes(channel.unary_unary(TRACES)(payload))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > give_up_s:
                raise


def test_deadlines_cancel_only_what_is_late() -> None:
    class Call:
        is_cancelled = False

        def cancel(self) -> None:
            self.is_cancelled = True

    now_s = 100.0
    deadlines = ReceiveDeadlines(10.0, lambda: now_s)
    early, late, done = Call(), Call(), Call()
    with deadlines.watch(late):
        with deadlines.watch(done):
            now_s = 105.0
        with deadlines.watch(early):
            now_s = 110.0
            deadlines.cancel_late()
    assert (early.is_cancelled, late.is_cancelled, done.is_cancelled) == (False, True, False)


def test_client_that_hangs_up_leaves_the_receiver_serving(
    grpc_intake: Any, traces: ExportTraceServiceRequest
) -> None:
    ingress = RecordingIngress()
    grpc_intake.start(ingress)
    for _ in range(5):
        channel = grpc.insecure_channel(f"127.0.0.1:{grpc_intake.port}")
        call = channel.unary_unary(TRACES).future(bytes(4 * MIB))
        call.cancel()
        channel.close()
    assert grpc_intake.send(traces.SerializeToString()).code is grpc.StatusCode.OK


def test_garbage_on_the_port_leaves_the_receiver_serving(
    grpc_intake: Any, traces: ExportTraceServiceRequest
) -> None:
    grpc_intake.start(RecordingIngress())
    with socket.create_connection(("127.0.0.1", grpc_intake.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 64)
    assert grpc_intake.send(traces.SerializeToString()).code is grpc.StatusCode.OK


def test_connections_are_bounded(grpc_intake: Any, traces: ExportTraceServiceRequest) -> None:
    grpc_intake.start(RecordingIngress(), max_connections=1)
    options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own for each channel
    payload = traces.SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{grpc_intake.port}", options=options) as first:
        assert first.unary_unary(TRACES)(payload) == b""
        with (
            grpc.insecure_channel(f"127.0.0.1:{grpc_intake.port}", options=options) as second,
            pytest.raises(grpc.RpcError) as raised,
        ):
            second.unary_unary(TRACES)(payload)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert first.unary_unary(TRACES)(payload) == b""


def test_mutual_tls_admits_only_clients_of_the_ca(
    grpc_intake: Any, traces: ExportTraceServiceRequest, certificates: CertificateFiles
) -> None:
    ingress = RecordingIngress()
    tls = ServerTlsConfig(
        cert_file=certificates.server_cert,
        key_file=certificates.server_key,
        client_ca_file=certificates.ca,
    )
    grpc_intake.start(ingress, tls=tls)

    ca, key, cert = (
        Path(name).read_bytes()
        for name in (certificates.ca, certificates.client_key, certificates.client_cert)
    )
    known = grpc.ssl_channel_credentials(ca, key, cert)
    stranger = grpc.ssl_channel_credentials(ca)
    payload = traces.SerializeToString()
    with grpc.secure_channel(f"127.0.0.1:{grpc_intake.port}", known) as channel:
        assert channel.unary_unary(TRACES)(payload, timeout=20) == b""
    with (
        grpc.secure_channel(f"127.0.0.1:{grpc_intake.port}", stranger) as channel,
        pytest.raises(grpc.RpcError) as raised,
    ):
        channel.unary_unary(TRACES)(payload, timeout=20)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert len(ingress.offers) == 1
