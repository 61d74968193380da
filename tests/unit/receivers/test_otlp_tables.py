from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.loss import NO_LOSS, Loss
from otel_llmprism.model.metrics import HISTOGRAM, SUM
from otel_llmprism.model.spans import BAD_ID
from otel_llmprism.model.values import ValueType
from otel_llmprism.native.otlp import KeySelection, MalformedRequestError
from otel_llmprism.receivers.otlp_tables import read_logs, read_metrics, read_spans

KEYS = KeySelection(("text", "number", "share", "ok", "raw", "list"), ("service.name",))


def build_trace() -> bytes:
    request = ExportTraceServiceRequest()
    for service in ("shop", "cart"):
        resource = request.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = service
        scope = resource.scope_spans.add()
        scope.scope.name, scope.scope.version = "lib", "2"
        for number in range(3):
            span = scope.spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, name=f"op{number % 2}")
            span.start_time_unix_nano, span.end_time_unix_nano = 10, 15 + number
            span.attributes.add(key="number").value.int_value = -number
            span.attributes.add(key="text").value.string_value = "h\u00e9" * number
            if number:
                span.attributes.add(key="share").value.double_value = 0.5
                span.attributes.add(key="ok").value.bool_value = True
                span.attributes.add(key="raw").value.bytes_value = b"\xff"
                span.attributes.add(key="list").value.array_value.values.add().int_value = 1
    scope.spans.add(name="no ids")
    return request.SerializeToString()


def test_spans_become_equally_long_columns_over_the_payload() -> None:
    table = read_spans(build_trace(), KEYS)
    assert len(table) == 7
    assert table.end_ns[:3].tolist() == [15, 16, 17]
    assert [table.name[row] for row in range(3)] == ["op0", "op1", "op0"]
    assert table.resource.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert table.trace_id[0].tobytes() == b"t" * 16
    assert (table.flags & BAD_ID).tolist() == [0] * 6 + [1]
    services = table.origins.resources.attributes["service.name"]
    assert [services[int(row)] for row in table.resource[2:4]] == ["shop", "cart"]
    assert table.origins.scopes.name[1] == "lib"
    assert table.origins.loss == Loss(malformed=1)


def test_attribute_values_read_as_scalars_numbers_and_masks() -> None:
    values = read_spans(build_trace(), KEYS).attributes
    assert [values[key][1] for key in KEYS.record_keys] == ["h\u00e9", -1, 0.5, True, b"\xff", None]
    assert values["share"][0] is None
    assert values["list"].types[1] == ValueType.ARRAY
    np.testing.assert_array_equal(values["number"].to_numbers()[:3], [0, -1, -2])
    np.testing.assert_array_equal(values["share"].to_numbers()[:2], [np.nan, 0.5])
    np.testing.assert_array_equal(values["ok"].to_numbers()[:2], [np.nan, 1])
    assert values["raw"].match_value(b"\xff").tolist() == [False, True, True] * 2 + [False]


def test_names_are_interned_and_matched_as_columns() -> None:
    names = read_spans(build_trace()).name
    interned = names.intern_texts()
    assert interned.pool == ("op0", "op1", "no ids")
    assert interned.codes.tolist() == [0, 1, 0, 0, 1, 0, 2]
    assert names.match_prefix("op").sum() == 6
    assert names.match_text("").sum() == 0
    assert names.match_prefix("").sum() == 7


@pytest.mark.parametrize("size", range(1, 20))
def test_texts_of_every_length_are_matched_whole(size: int) -> None:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    wanted = "abcdefghijklmnopqrstuvwxyz"[:size]
    others = [wanted[:place] + "#" + wanted[place + 1 :] for place in range(size)]
    for name in (*others, wanted, wanted + "#", wanted[:-1]):
        scope.spans.add(name=name)
    names = read_spans(request.SerializeToString()).name
    assert np.flatnonzero(names.match_text(wanted)).tolist() == [size]
    assert np.flatnonzero(names.match_prefix(wanted)).tolist() == [size, size + 1]


def test_text_that_is_not_utf8_reads_with_a_mark_and_its_bytes_stay() -> None:
    payload = build_trace().replace(b"op0", b"o\xff0")
    name = read_spans(payload).name
    assert (name[0], name.read_raw(0)) == ("o\ufffd0", b"o\xff0")


def test_logs_and_metrics_become_columns() -> None:
    logs = ExportLogsServiceRequest()
    log: Any = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=7)
    log.severity_number = 9
    log.event_name = "llmprism.ledger"
    log.body.bytes_value = b"body"
    table = read_logs(logs.SerializeToString())
    assert (table.event_name[0], table.body.read_raw(0), table.body_type[0]) == (
        "llmprism.ledger",
        b"body",
        7,
    )
    assert (len(table), table.time_ns[0], table.severity[0]) == (1, 7, 9)
    metrics = ExportMetricsServiceRequest()
    scope = metrics.resource_metrics.add().scope_metrics.add()
    metric: Any = scope.metrics.add(name="m", unit="s")
    metric.sum.aggregation_temporality = 1
    metric.sum.data_points.add()
    scope.metrics.add(name="h").histogram.data_points.add()
    rows = read_metrics(metrics.SerializeToString())
    assert (rows.type.tolist(), rows.temporality.tolist()) == ([SUM, HISTOGRAM], [1, 0])
    assert (rows.unit[0], rows.point_count.tolist()) == ("s", [1, 1])


def test_bad_framing_raises_with_its_offset() -> None:
    with pytest.raises(MalformedRequestError) as caught:
        read_spans(b"\x0a\x05")
    assert caught.value.offset == 0


def test_an_empty_request_gives_empty_tables() -> None:
    table = read_spans(b"", KEYS)
    assert (len(table), len(table.attributes["text"]), table.origins.loss) == (0, 0, NO_LOSS)


def test_losses_add_up_to_a_share() -> None:
    loss = Loss(dropped=1, late=2) + Loss(malformed=3, unmatched=4)
    assert (loss.total, loss.share_of(10), NO_LOSS.share_of(0)) == (10, 0.5, 0.0)
