# Every field of every published struct, decoded by hand at its byte: layout, native side and twin agree.
import struct
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.native import otlp
from otel_llmprism.native.otlp_layout import Layout, build_struct

KEYS = otlp.KeySelection(("n", "absent", "s"), ("service.name",))


def u32(row: bytes, at: int) -> int:
    return int.from_bytes(row[at : at + 4], "little")


def i32(row: bytes, at: int) -> int:
    return int.from_bytes(row[at : at + 4], "little", signed=True)


def u64(row: bytes, at: int) -> int:
    return int.from_bytes(row[at : at + 8], "little")


def text(payload: bytes, row: bytes, at: int) -> bytes:
    return payload[u32(row, at) : u32(row, at) + u32(row, at + 4)]


def build_trace() -> bytes:
    request = ExportTraceServiceRequest()
    request.resource_spans.add()
    group = request.resource_spans.add(schema_url="resource schema")
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    group.resource.attributes.add(key="other").value.int_value = 1
    scope = group.scope_spans.add(schema_url="scope schema")
    scope.scope.name, scope.scope.version = "scope name", "1.2"
    scope.scope.attributes.add(key="a").value.bool_value = True
    scope.spans.add()
    span: Any = scope.spans.add(
        trace_id=bytes(range(16)),
        span_id=bytes(range(8)),
        parent_span_id=bytes(range(20, 28)),
        name="the name",
    )
    span.start_time_unix_nano, span.end_time_unix_nano = 0x1122334455667788, 0x2122334455667788
    span.kind, span.flags = 3, 0x01020304
    span.status.code, span.status.message = 2, "the message"
    span.attributes.add(key="n").value.int_value = -2
    span.attributes.add(key="s").value.string_value = "value"
    for _ in range(3):
        span.events.add(name="e")
    for _ in range(4):
        span.links.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    return request.SerializeToString()


def test_resource_rows_are_52_bytes_at_their_published_places(engine: Any) -> None:
    payload = build_trace()
    rows = engine.scan(payload, "traces", KEYS).resources
    first, row = bytes(rows[:52]), bytes(rows[52:])
    assert first == struct.pack("<13I", 0, 2, 0, *(0,) * 10)
    assert len(row) == 52
    assert (u32(row, 0), u32(row, 4)) == (2, 5)
    assert u32(row, 8) == len(payload) - 5
    assert text(payload, row, 12).startswith(b"\x0a\x16\x0a\x0cservice.name")
    assert text(payload, row, 20) == b"resource schema"
    assert [u32(row, at) for at in range(28, 52, 4)] == [2, 0, 1, 0, 2, 0]


def test_scope_rows_are_64_bytes_at_their_published_places(engine: Any) -> None:
    payload = build_trace()
    row = engine.scan(payload, "traces", KEYS).scopes
    assert len(row) == 64
    assert payload[u32(row, 0)] == 0x12
    assert text(payload, row, 4).startswith(b"\x0a")
    assert u32(row, 12) == 1
    assert text(payload, row, 16).startswith(b"\x0a\x0ascope name")
    assert text(payload, row, 24) == b"scope name"
    assert text(payload, row, 32) == b"1.2"
    assert text(payload, row, 40) == b"scope schema"
    assert [u32(row, at) for at in range(48, 64, 4)] == [1, 0, 2, 0]


def test_span_rows_are_112_bytes_at_their_published_places(engine: Any) -> None:
    payload = build_trace()
    found = engine.scan(payload, "traces", KEYS)
    assert (found.record_count, found.bad_id_count) == (2, 1)
    empty, row = found.records[:112], found.records[112:]
    assert (u32(empty, 56), u32(empty, 60), u32(empty, 108)) == (0, 1, 1)
    assert len(row) == 112
    assert (u64(row, 0), u64(row, 8)) == (0x1122334455667788, 0x2122334455667788)
    assert row[16:48] == bytes(range(16)) + bytes(range(8)) + bytes(range(20, 28))
    assert payload[u32(row, 48)] == 0x12
    assert text(payload, row, 52).startswith(b"\x0a\x10" + bytes(range(16)))
    assert (u32(row, 60), u32(row, 64)) == (1, 0)
    assert text(payload, row, 68) == b"the name"
    assert (i32(row, 76), i32(row, 80)) == (3, 2)
    assert text(payload, row, 84) == b"the message"
    assert [u32(row, at) for at in range(92, 112, 4)] == [2, 3, 4, 0x01020304, 0]


def test_value_cells_are_24_bytes_dense_by_record_and_key(engine: Any) -> None:
    payload = build_trace()
    found = engine.scan(payload, "traces", KEYS)
    assert len(found.values) == 2 * 3 * 24
    assert found.values[:72] == bytes(72)
    number, absent, string = (found.values[at : at + 24] for at in (72, 96, 120))
    assert u64(number, 0) == (1 << 64) - 2
    assert text(payload, number, 8) == b"\xfe" + b"\xff" * 8 + b"\x01"
    assert (u32(number, 16), u32(number, 20)) == (3, 0)
    assert absent == bytes(24)
    assert (u64(string, 0), text(payload, string, 8), u32(string, 16)) == (0, b"value", 1)
    assert found.resource_values[:24] == bytes(24)
    assert text(payload, found.resource_values[24:], 8) == b"shop"


def test_log_rows_are_104_bytes_at_their_published_places(engine: Any) -> None:
    request = ExportLogsServiceRequest()
    log: Any = request.resource_logs.add().scope_logs.add().log_records.add(
        time_unix_nano=7, observed_time_unix_nano=8, trace_id=b"t" * 16, span_id=b"s" * 8,
        severity_text="ERROR", event_name="an.event", flags=5,
    )  # fmt: skip
    log.severity_number = 17
    log.body.bytes_value = b"the body"
    log.attributes.add(key="n").value.double_value = 1.5
    payload = request.SerializeToString()
    found = engine.scan(payload, "logs", KEYS)
    row = found.records
    assert len(row) == 104
    assert (u64(row, 0), u64(row, 8), row[16:40]) == (7, 8, b"t" * 16 + b"s" * 8)
    assert payload[u32(row, 40)] == 0x12
    assert u32(row, 44) + u32(row, 48) == len(payload)
    assert (u32(row, 52), u32(row, 56), i32(row, 60)) == (0, 0, 17)
    assert (text(payload, row, 64), text(payload, row, 72)) == (b"ERROR", b"an.event")
    assert (text(payload, row, 80), u32(row, 88)) == (b"the body", 7)
    assert [u32(row, at) for at in range(92, 104, 4)] == [1, 5, 0]
    assert struct.unpack("<d", found.values[:8]) == (1.5,)


def test_metric_rows_are_56_bytes_at_their_published_places(engine: Any) -> None:
    request = ExportMetricsServiceRequest()
    metric: Any = (
        request.resource_metrics.add().scope_metrics.add().metrics.add(name="m", unit="s", description="d")
    )
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = 2, True
    metric.sum.data_points.add(as_int=1)
    metric.sum.data_points.add(as_double=1)
    payload = request.SerializeToString()
    row = engine.scan(payload, "metrics", KEYS).records
    assert len(row) == 56
    assert payload[u32(row, 0)] == 0x12
    assert u32(row, 4) + u32(row, 8) == len(payload)
    assert (u32(row, 12), u32(row, 16)) == (0, 0)
    assert (text(payload, row, 20), text(payload, row, 28)) == (b"m", b"s")
    assert (u32(row, 36), i32(row, 40)) == (7, 2)
    assert [u32(row, at) for at in range(44, 56, 4)] == [1, 2, 0]


@pytest.mark.parametrize(
    ("layout", "size"),
    [
        (otlp.RESOURCE_DTYPE, 52),
        (otlp.SCOPE_DTYPE, 64),
        (otlp.SPAN_DTYPE, 112),
        (otlp.LOG_DTYPE, 104),
        (otlp.METRIC_DTYPE, 56),
        (otlp.VALUE_DTYPE, 24),
    ],
)
def test_a_layout_has_no_padding_and_numpy_takes_it_as_it_is(layout: Layout, size: int) -> None:
    dtype: Any = np.dtype(layout)
    assert (dtype.itemsize, build_struct(layout).size) == (size, size)
    at = 0
    for name in dtype.names:
        field_dtype, offset = dtype.fields[name][:2]
        assert offset == at
        at += field_dtype.itemsize
