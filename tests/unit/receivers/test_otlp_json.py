# OTLP/JSON is read as the specification says; protobuf's own messages are the oracle.
import json
import math
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_llmprism.model.signals import Signal
from otel_llmprism.receivers.otlp_json import MalformedJsonError, encode_json_request

TRACE_ID, SPAN_ID = "5B8EFFF798038103D269B633813FC60C", "eee19b7ec3c1b174"


def wrap_span(span: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def read_span(span: dict[str, Any]) -> Span:
    request = ExportTraceServiceRequest.FromString(encode_json_request(Signal.TRACES, wrap_span(span)))
    return request.resource_spans[0].scope_spans[0].spans[0]


def read_value(value: dict[str, Any]) -> AnyValue:
    return read_span({"attributes": [{"key": "k", "value": value}]}).attributes[0].value


def test_span_is_read_whole() -> None:
    span = read_span(
        {
            "traceId": TRACE_ID,
            "spanId": SPAN_ID,
            "parentSpanId": "",
            "name": "I'm a server span",
            "kind": 2,
            "startTimeUnixNano": "1544712660000000001",
            "endTimeUnixNano": 1544712661000000001,
            "droppedAttributesCount": "3",
            "events": [{"timeUnixNano": "1", "name": "e"}],
            "links": [{"traceId": TRACE_ID.lower(), "spanId": SPAN_ID}],
            "status": {"code": 2, "message": "broken"},
        }
    )
    expected = Span(
        trace_id=bytes.fromhex(TRACE_ID),
        span_id=bytes.fromhex(SPAN_ID),
        name="I'm a server span",
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=1544712660000000001,
        end_time_unix_nano=1544712661000000001,
        dropped_attributes_count=3,
    )
    expected.events.add(time_unix_nano=1, name="e")
    expected.links.add(trace_id=bytes.fromhex(TRACE_ID), span_id=bytes.fromhex(SPAN_ID))
    expected.status.code = Status.STATUS_CODE_ERROR
    expected.status.message = "broken"
    assert span == expected


def test_logs_and_metrics_are_read() -> None:
    log = {"timeUnixNano": "5", "severityNumber": 9, "body": {"stringValue": "x"}, "traceId": TRACE_ID}
    text = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}).encode()
    logs = ExportLogsServiceRequest.FromString(encode_json_request(Signal.LOGS, text))
    record = logs.resource_logs[0].scope_logs[0].log_records[0]
    assert (record.time_unix_nano, record.severity_number, record.body.string_value) == (5, 9, "x")
    assert record.trace_id == bytes.fromhex(TRACE_ID)
    point = {"asDouble": "NaN", "exemplars": [{"asInt": "-7", "spanId": SPAN_ID}]}
    buckets = {"bucketCounts": ["1", 2], "explicitBounds": [0.5, "1.5"], "sum": 3}
    metrics = [{"name": "g", "gauge": {"dataPoints": [point]}}, {"histogram": {"dataPoints": [buckets]}}]
    text = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}).encode()
    request = ExportMetricsServiceRequest.FromString(encode_json_request(Signal.METRICS, text))
    gauge, histogram = request.resource_metrics[0].scope_metrics[0].metrics
    assert math.isnan(gauge.gauge.data_points[0].as_double)
    assert gauge.gauge.data_points[0].exemplars[0].as_int == -7
    assert gauge.gauge.data_points[0].exemplars[0].span_id == bytes.fromhex(SPAN_ID)
    assert list(histogram.histogram.data_points[0].bucket_counts) == [1, 2]
    assert list(histogram.histogram.data_points[0].explicit_bounds) == [0.5, 1.5]


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        ({"stringValue": ""}, "string_value", ""),
        ({"boolValue": False}, "bool_value", False),
        ({"intValue": "-9223372036854775808"}, "int_value", -(1 << 63)),
        ({"intValue": 12}, "int_value", 12),
        ({"intValue": 1e3}, "int_value", 1000),
        ({"doubleValue": "-Infinity"}, "double_value", -math.inf),
        ({"doubleValue": 1}, "double_value", 1.0),
        ({"bytesValue": "aGk="}, "bytes_value", b"hi"),
        ({"bytesValue": "_-8"}, "bytes_value", b"\xff\xef"),
    ],
)
def test_attribute_values_keep_kind_and_value(value: dict[str, Any], field: str, expected: Any) -> None:
    read = read_value(value)
    assert read.WhichOneof("value") == field
    assert getattr(read, field) == expected


def test_unknown_fields_and_nulls_are_ignored_and_proto_names_are_unknown() -> None:
    span = read_span({"name": None, "tomorrow": {"x": [1]}, "trace_id": TRACE_ID, "attributes": None})
    assert span == Span()


def test_array_and_map_values_nest() -> None:
    pair = {"key": "k", "value": {"arrayValue": {"values": [{"intValue": 1}, {}]}}}
    read = read_value({"kvlistValue": {"values": [pair]}})
    values = read.kvlist_value.values[0].value.array_value.values
    assert [value.WhichOneof("value") for value in values] == ["int_value", None]


def test_empty_object_is_a_field_that_is_there() -> None:
    assert read_span({"status": {}}).HasField("status")


@pytest.mark.parametrize(
    ("span", "where"),
    [
        ({"traceId": "xyz"}, "traceId is a string, not an id in hexadecimal"),
        ({"traceId": 7}, "traceId is a number"),
        ({"kind": "SPAN_KIND_SERVER"}, "kind is a string, not a whole number"),
        ({"startTimeUnixNano": -1}, "startTimeUnixNano is a number, not a whole number from 0"),
        ({"startTimeUnixNano": "18446744073709551616"}, "startTimeUnixNano"),
        ({"startTimeUnixNano": "1e3"}, "startTimeUnixNano"),
        ({"startTimeUnixNano": 1.5}, "startTimeUnixNano"),
        ({"startTimeUnixNano": True}, "startTimeUnixNano is a boolean"),
        ({"name": 7}, "name is a number, not a string"),
        ({"events": {}}, "events is an object, not an array"),
        ({"status": []}, "status is an array, not an object"),
        ({"events": [7]}, r"events\[0\] is a number, not an object"),
        ({"attributes": [{"value": {"bytesValue": "*"}}]}, r"attributes\[0\]\.value\.bytesValue"),
        (
            {"attributes": [{"value": {"doubleValue": "1_0"}}]},
            r"attributes\[0\]\.value\.doubleValue is a string, not a number",
        ),
        (
            {"attributes": [{"value": {"boolValue": 1}}]},
            r"attributes\[0\]\.value\.boolValue is a number, not true or false",
        ),
    ],
)
def test_wrong_values_are_refused_with_their_place(span: dict[str, Any], where: str) -> None:
    with pytest.raises(
        MalformedJsonError, match=r"^resourceSpans\[0\]\.scopeSpans\[0\]\.spans\[0\]\." + where
    ):
        encode_json_request(Signal.TRACES, wrap_span(span))


def test_message_does_not_show_what_the_user_sent() -> None:
    with pytest.raises(MalformedJsonError) as raised:
        encode_json_request(Signal.TRACES, wrap_span({"kind": "secret prompt"}))
    assert "secret" not in str(raised.value)


def test_nesting_beyond_the_bound_is_refused_and_below_it_is_read() -> None:
    def nest(depth: int) -> bytes:
        value: dict[str, Any] = {"intValue": 1}
        for _ in range(depth):
            value = {"arrayValue": {"values": [value]}}
        return wrap_span({"attributes": [{"key": "k", "value": value}]})

    assert encode_json_request(Signal.TRACES, nest(40))
    with pytest.raises(MalformedJsonError, match="nested deeper than 90"):
        encode_json_request(Signal.TRACES, nest(60))
    deep = b'{"arrayValue":{"values":[' * 20_000
    with pytest.raises(MalformedJsonError, match="nested too deeply"):
        encode_json_request(Signal.TRACES, deep)


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"NaN", b'{"a":1}{', b'{"resourceSpans":[null]}'])
def test_text_that_is_no_request_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedJsonError):
        encode_json_request(Signal.TRACES, text)


def test_huge_numbers_are_refused_or_infinite_but_never_break_us() -> None:
    huge = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"startTimeUnixNano":%s}]}]}]}' % (b"9" * 400)
    with pytest.raises(MalformedJsonError):
        encode_json_request(Signal.TRACES, huge)
