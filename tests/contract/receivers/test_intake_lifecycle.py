# Start, stop, bounds and protection of both receivers.
import http.client
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.receivers.limits import IntakeLimits
from otel_llmprism.receivers.listen_address import ListenError
from otel_llmprism.receivers.tls import ServerTlsConfig
from otel_llmprism.testing.blocking_ingress import BlockingIngress
from otel_llmprism.testing.certificates import CertificateFiles
from otel_llmprism.testing.contracts import check_source_contract
from otel_llmprism.testing.ingresses import RecordingIngress


def in_seconds(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)


def test_receiver_keeps_the_contract_of_a_source(intake: Any) -> None:
    check_source_contract(lambda: intake.build(RecordingIngress()), in_seconds(10))


def test_no_thread_is_left_after_stop(intake: Any, traces: ExportTraceServiceRequest) -> None:
    before = set(threading.enumerate())
    receiver = intake.start(RecordingIngress())
    intake.send(traces.SerializeToString())
    ours = [t for t in set(threading.enumerate()) - before if t.name.startswith("otlp-")]
    assert ours
    receiver.stop(in_seconds(5))
    for thread in ours:
        thread.join(10)
        assert not thread.is_alive()


def test_port_in_use_is_one_clear_error(intake: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{port}: .*; another program listens there"):
            intake.build(RecordingIngress(), endpoint=f"127.0.0.1:{port}").start()


def test_second_receiver_on_the_port_of_the_first_is_refused(intake: Any) -> None:
    first = intake.start(RecordingIngress())
    with pytest.raises(ListenError, match="another program"):
        intake.build(RecordingIngress(), endpoint=f"127.0.0.1:{first.port}").start()


def test_running_request_is_finished_before_stop_returns(
    intake: Any, traces: ExportTraceServiceRequest
) -> None:
    ingress = BlockingIngress()
    receiver = intake.start(ingress)
    with ThreadPoolExecutor(2) as pool:
        sent = pool.submit(intake.send, traces.SerializeToString())
        ingress.wait_for_inside(1)
        stopped = pool.submit(receiver.stop, in_seconds(30))
        ingress.release()
        assert sent.result(20).code is grpc.StatusCode.OK
        stopped.result(20)


def test_request_that_outlasts_the_deadline_does_not_hold_up_stop(
    intake: Any, traces: ExportTraceServiceRequest
) -> None:
    ingress = BlockingIngress()
    receiver = intake.start(ingress)
    outcome: list[Any] = []

    def send() -> None:
        try:
            outcome.append(intake.send(traces.SerializeToString()).code)
        except (http.client.HTTPException, OSError, KeyError) as error:
            outcome.append(error)  # KeyError: a 500 of the server, no code of ours

    client = threading.Thread(target=send)
    client.start()
    ingress.wait_for_inside(1)
    receiver.stop(in_seconds(0.2))
    ingress.release()
    client.join(20)
    assert outcome != []
    assert outcome[0] is not grpc.StatusCode.OK


def test_requests_beyond_the_bound_are_told_to_come_again(
    intake: Any, traces: ExportTraceServiceRequest
) -> None:
    ingress = BlockingIngress()
    intake.start(ingress, limits=IntakeLimits(max_concurrent=2, retry_after_s=3))
    payload = traces.SerializeToString()
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(intake.send, payload) for _ in range(2)]
        ingress.wait_for_inside(2)
        refused = [intake.send(payload) for _ in range(8)]
        ingress.release()
        assert {future.result(20).code for future in running} == {grpc.StatusCode.OK}
    assert {reply.code for reply in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert {reply.retry_after_s for reply in refused} == {3.0}
    assert intake.send(payload).code is grpc.StatusCode.OK


def test_token_is_required_where_one_is_set(
    intake: Any, traces: ExportTraceServiceRequest, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret\n")
    token_file.chmod(0o600)
    ingress = RecordingIngress()
    intake.start(ingress, token_file=str(token_file))
    payload = traces.SerializeToString()
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
        reply = intake.send(payload, headers=headers)
        assert reply.code is grpc.StatusCode.UNAUTHENTICATED
        assert "s3cret" not in reply.message
    assert intake.send(payload, headers={"Authorization": "Bearer s3cret"}).code is grpc.StatusCode.OK
    assert len(ingress.offers) == 1


def test_token_file_that_others_read_is_warned_about(
    intake: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret")
    token_file.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IROTH)
    intake.start(RecordingIngress(), token_file=str(token_file))
    assert "chmod 600" in caplog.text
    assert "s3cret" not in caplog.text


def test_open_address_without_protection_is_allowed_and_warned_about_once(
    intake: Any, traces: ExportTraceServiceRequest, caplog: pytest.LogCaptureFixture
) -> None:
    intake.start(RecordingIngress(), endpoint="0.0.0.0:0")
    assert intake.send(traces.SerializeToString()).code is grpc.StatusCode.OK
    assert [r.getMessage() for r in caplog.records if "without TLS and a token" in r.getMessage()] != []
    assert len(caplog.records) == 1


@pytest.mark.parametrize("bad", ["missing", "garbage", "mismatch"])
def test_unusable_certificate_is_one_clear_error(
    intake: Any, certificates: CertificateFiles, tmp_path: Path, bad: str
) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    files = {
        "missing": (str(tmp_path / "missing.pem"), certificates.server_key),
        "garbage": (str(garbage), certificates.server_key),
        "mismatch": (certificates.server_cert, certificates.client_key),
    }
    tls = ServerTlsConfig(cert_file=files[bad][0], key_file=files[bad][1])
    with pytest.raises(ConfigError, match=r"^tls: "):
        intake.build(RecordingIngress(), tls=tls).start()
