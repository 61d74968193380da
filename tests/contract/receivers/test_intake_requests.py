# What both receivers do with a request, good or bad, as a client sees it.
import gzip
import random
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.ports import Outcome, Verdict
from otel_llmprism.receivers.limits import IntakeLimits
from otel_llmprism.testing.ingresses import RecordingIngress


def build_field(number: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + body


def build_logs() -> bytes:
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "hello"
    return request.SerializeToString()


def build_metrics() -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.gauge.data_points.add(as_int=1)
    return request.SerializeToString()


def test_every_signal_arrives_byte_for_byte(intake: Any, traces: ExportTraceServiceRequest) -> None:
    ingress = RecordingIngress()
    intake.start(ingress)
    unknown = build_field(15, b"a field of tomorrow")
    sent = [
        (Signal.TRACES, traces.SerializeToString() + unknown),
        (Signal.LOGS, unknown + build_logs()),
        (Signal.METRICS, build_metrics()),
    ]
    for signal, payload in sent:
        reply = intake.send(payload, signal)
        assert (reply.code, reply.body) == (grpc.StatusCode.OK, b"")
    assert ingress.offers == sent


def test_empty_request_is_answered_and_not_queued(intake: Any) -> None:
    ingress = RecordingIngress()
    intake.start(ingress)
    envelope_only = ExportTraceServiceRequest()
    envelope_only.resource_spans.add().scope_spans.add()
    for payload in (b"", envelope_only.SerializeToString()):
        assert intake.send(payload).code is grpc.StatusCode.OK
    assert ingress.offers == []


def test_bad_framing_refuses_the_whole_request_and_names_the_offset(
    intake: Any, traces: ExportTraceServiceRequest
) -> None:
    ingress = RecordingIngress()
    intake.start(ingress)
    reply = intake.send(traces.SerializeToString()[:-1])
    assert reply.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "at byte " in reply.message
    assert reply.retry_after_s is None
    assert ingress.offers == []
    assert intake.counters.value("llmprism.intake.refused", stage=intake.stage, cause="malformed") == 1


def test_spans_with_bad_ids_are_cut_out_and_told_as_a_partial_success(
    intake: Any, traces: ExportTraceServiceRequest
) -> None:
    ingress = RecordingIngress()
    intake.start(ingress)
    spans = traces.resource_spans[0].scope_spans[0].spans
    spans[1].span_id = b"short"
    reply = intake.send(traces.SerializeToString())
    partial = ExportTraceServiceResponse.FromString(reply.body).partial_success
    assert partial.rejected_spans == 1
    assert "span id" in partial.error_message
    del spans[1]
    assert ingress.offers == [(Signal.TRACES, traces.SerializeToString())]
    assert intake.counters.value("llmprism.lost", stage=intake.stage, cause="bad_id") == 1


def test_request_with_bad_ids_only_is_not_queued(intake: Any, traces: ExportTraceServiceRequest) -> None:
    ingress = RecordingIngress()
    intake.start(ingress)
    for span in traces.resource_spans[0].scope_spans[0].spans:
        span.trace_id = b"x" * 15
    reply = intake.send(traces.SerializeToString())
    assert ExportTraceServiceResponse.FromString(reply.body).partial_success.rejected_spans == 3
    assert ingress.offers == []


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.BUSY, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (Outcome.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_refusal_of_the_pipeline_carries_the_retry_delay(
    intake: Any, traces: ExportTraceServiceRequest, outcome: Outcome, code: grpc.StatusCode
) -> None:
    ingress = RecordingIngress(Verdict(outcome, 1.5, "the log is full"))
    intake.start(ingress)
    traces.resource_spans[0].scope_spans[0].spans[0].span_id = b"short"
    reply = intake.send(traces.SerializeToString())
    assert (reply.code, reply.message) == (code, "the log is full")
    assert reply.retry_after_s == (1.5 if intake.kind == "grpc" else 2.0)
    assert intake.counters.value("llmprism.lost", stage=intake.stage, cause="bad_id") == 0


def test_pipeline_that_raises_leaves_the_data_with_the_client(
    intake: Any, traces: ExportTraceServiceRequest, caplog: pytest.LogCaptureFixture
) -> None:
    class BrokenIngress:
        def offer(self, _signal: Signal, _payload: bytes, /) -> Verdict:
            raise OSError("no such disk")

    intake.start(BrokenIngress())
    reply = intake.send(traces.SerializeToString())
    assert reply.code is grpc.StatusCode.UNAVAILABLE
    assert reply.retry_after_s is not None
    assert "no such disk" not in reply.message
    assert "no such disk" in caplog.text


def test_oversized_request_is_refused_without_a_retry(intake: Any, traces: ExportTraceServiceRequest) -> None:
    ingress = RecordingIngress()
    intake.start(ingress, limits=IntakeLimits(max_request_bytes=1000))
    span = traces.resource_spans[0].scope_spans[0].spans[0]
    span.name = "x" * (1000 - traces.ByteSize())
    assert traces.ByteSize() > 900
    assert intake.send(traces.SerializeToString()).code is grpc.StatusCode.OK
    span.name = "x" * 1001
    reply = intake.send(traces.SerializeToString())
    assert reply.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert reply.retry_after_s is None
    assert len(ingress.offers) == 1


def test_bit_flips_are_passed_on_or_refused_but_never_break_the_receiver(
    intake: Any, traces: ExportTraceServiceRequest
) -> None:
    ingress = RecordingIngress()
    intake.start(ingress)
    good = traces.SerializeToString()
    flips = random.Random(7)
    for _ in range(60):
        damaged = bytearray(good)
        damaged[flips.randrange(len(good))] ^= 1 << flips.randrange(8)
        assert intake.send(bytes(damaged)).code in {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    assert intake.send(good).code is grpc.StatusCode.OK
    assert ingress.offers[-1] == (Signal.TRACES, good)


def test_deeply_nested_request_is_refused(intake: Any) -> None:
    ingress = RecordingIngress()
    intake.start(ingress)
    value = b""
    for _ in range(5000):
        value = build_field(5, build_field(1, value))  # AnyValue.array_value.values
    attribute = build_field(9, build_field(2, value))
    reply = intake.send(build_field(1, build_field(2, build_field(2, attribute))))
    assert reply.code is grpc.StatusCode.INVALID_ARGUMENT
    assert ingress.offers == []


def test_a_million_attributes_on_one_span_pass(intake: Any) -> None:
    ingress = RecordingIngress()
    intake.start(ingress)
    attribute = build_field(9, build_field(1, b"k"))
    ids = build_field(1, b"t" * 16) + build_field(2, b"s" * 8)
    payload = build_field(1, build_field(2, build_field(2, ids + attribute * 1_000_000)))
    assert intake.send(payload).code is grpc.StatusCode.OK
    assert ingress.offers == [(Signal.TRACES, payload)]


def test_odd_but_well_framed_content_passes_unchanged(intake: Any, traces: ExportTraceServiceRequest) -> None:
    ingress = RecordingIngress()
    intake.start(ingress)
    spans = traces.resource_spans[0].scope_spans[0].spans
    spans[0].start_time_unix_nano = 0
    spans[1].start_time_unix_nano = (1 << 64) - 1
    spans[2].span_id = spans[1].span_id
    ids = build_field(1, b"t" * 16) + build_field(2, b"s" * 8)
    invalid_utf8 = build_field(2, ids + build_field(5, b"\xff\xfe"))
    payload = traces.SerializeToString() + build_field(1, build_field(2, invalid_utf8))
    assert intake.send(payload).code is grpc.StatusCode.OK
    assert ingress.offers == [(Signal.TRACES, payload)]
    assert intake.counters.value("llmprism.intake.invalid_utf8", signal="traces") == 1


def test_compressed_request_arrives_decompressed(http_intake: Any, traces: ExportTraceServiceRequest) -> None:
    ingress = RecordingIngress()
    http_intake.start(ingress)
    payload = traces.SerializeToString()
    reply = http_intake.send(gzip.compress(payload), headers={"Content-Encoding": "gzip"})
    assert reply.code is grpc.StatusCode.OK
    assert ingress.offers == [(Signal.TRACES, payload)]
