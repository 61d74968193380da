# What the columns say, held against protobuf's own reading: merge rules, odd order, ids, values.
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_llmprism.native import otlp, otlp_native, otlp_twin
from otel_llmprism.native import otlp_layout as layout

KEYS = otlp.KeySelection(("key", "abc", ""), ("key",))


def frame(number: int, body: bytes) -> bytes:
    assert len(body) < 128 * 128
    size = bytes([len(body)]) if len(body) < 128 else bytes([len(body) & 127 | 128, len(body) >> 7])
    tag = number << 3 | 2
    return (bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])) + size + body


def request_of(*records: bytes) -> bytes:
    return frame(1, frame(2, b"".join(frame(2, record) for record in records)))


def attribute(key: bytes, value: bytes, number: int = 9) -> bytes:
    return frame(number, frame(1, key) + frame(2, value))


def scan_span(engine: Any, body: bytes) -> tuple[Any, Any]:
    found = engine.scan(request_of(body), "traces", KEYS)
    rows = np.frombuffer(found.records, np.dtype(otlp.SPAN_DTYPE))
    return rows[0], np.frombuffer(found.values, np.dtype(otlp.VALUE_DTYPE))[: len(KEYS.record_keys)]


TRACE_ID, SPAN_ID = frame(1, b"t" * 16), frame(2, b"s" * 8)


@pytest.mark.parametrize(
    ("body", "is_bad"),
    [
        (TRACE_ID + SPAN_ID, False),
        (TRACE_ID + SPAN_ID + frame(4, b"p" * 8), False),
        (TRACE_ID + SPAN_ID + frame(4, b""), False),
        (TRACE_ID + SPAN_ID + frame(4, b"p" * 7), True),
        (TRACE_ID, True),
        (SPAN_ID, True),
        (frame(1, b"t" * 15) + SPAN_ID, True),
        (frame(1, b"t" * 15) + TRACE_ID + SPAN_ID, True),
        (frame(1, bytes(16)) + SPAN_ID, True),
        (TRACE_ID + frame(2, bytes(8)), True),
        (TRACE_ID + frame(1, b"") + SPAN_ID, True),
        (TRACE_ID + SPAN_ID + frame(13, b""), False),
        (TRACE_ID + SPAN_ID + frame(13, TRACE_ID + SPAN_ID), False),
        (TRACE_ID + SPAN_ID + frame(13, frame(1, b"short")), True),
    ],
)
def test_a_span_with_a_bad_id_is_flagged_and_counted_not_refused(
    engine: Any, body: bytes, is_bad: bool
) -> None:
    found = engine.scan(request_of(TRACE_ID + SPAN_ID, body), "traces", KEYS)
    flags = np.frombuffer(found.records, np.dtype(otlp.SPAN_DTYPE))["flags"]
    assert (found.bad_id_count, flags.tolist()) == (is_bad, [0, int(is_bad)])


def test_a_log_may_have_no_ids_but_none_of_another_length(engine: Any) -> None:
    records = [
        b"",
        frame(9, b"t" * 16) + frame(10, b"s" * 8),
        frame(9, bytes(16)),
        frame(9, b"t"),
        frame(10, b"s"),
    ]
    found = engine.scan(request_of(*records), "logs", KEYS)
    flags = np.frombuffer(found.records, np.dtype(otlp.LOG_DTYPE))["flags"]
    assert flags.tolist() == [0, 0, 0, 1, 1]


def test_an_exemplar_with_an_id_of_another_length_flags_its_metric(engine: Any) -> None:
    point = frame(5, frame(5, b"short"))
    found = engine.scan(request_of(frame(5, frame(1, point)), frame(5, frame(1, b""))), "metrics", KEYS)
    assert np.frombuffer(found.records, np.dtype(otlp.METRIC_DTYPE))["flags"].tolist() == [1, 0]


def test_of_a_scalar_that_comes_twice_the_last_wins(engine: Any) -> None:
    row, _ = scan_span(engine, frame(5, b"first") + b"\x30\x01" + b"\x30\x02" + frame(5, b"last name"))
    assert (row["kind"], row["name_length"]) == (2, len(b"last name"))


def test_a_known_field_of_another_wire_type_is_unknown(engine: Any) -> None:
    row, _ = scan_span(engine, b"\x28\x05" + frame(6, b"kind as text") + b"\x3d" + bytes(4))
    assert (row["name_length"], row["kind"], row["start_ns"]) == (0, 0, 0)


def test_an_enum_is_cut_to_32_bits_as_protobuf_does(engine: Any) -> None:
    row, _ = scan_span(engine, b"\x30" + b"\xff" * 9 + b"\x01")
    assert row["kind"] == -1


def test_a_status_in_pieces_is_merged(engine: Any) -> None:
    row, _ = scan_span(engine, frame(15, b"\x18\x02") + frame(15, frame(2, b"msg")))
    assert (row["status_code"], row["status_message_length"]) == (2, 3)


def test_a_value_may_come_before_its_key_and_the_first_of_equal_keys_is_told(engine: Any) -> None:
    turned = frame(9, frame(2, b"\x18\x07") + frame(1, b"key"))
    row, cells = scan_span(engine, turned + attribute(b"key", b"\x18\x08"))
    assert row["attribute_count"] == 2
    assert (cells[0]["type"], cells[0]["bits"]) == (layout.INT, 7)


@pytest.mark.parametrize(
    ("value", "kind", "bits"),
    [
        (b"", layout.EMPTY, 0),
        (frame(1, b"text"), layout.STRING, 0),
        (b"\x10\x05", layout.BOOL, 1),
        (b"\x10\x00", layout.BOOL, 0),
        (b"\x18\x05", layout.INT, 5),
        (b"\x21" + bytes(7) + b"\x40", layout.DOUBLE, 0x40 << 56),
        (frame(5, b""), layout.ARRAY, 0),
        (frame(6, b""), layout.KVLIST, 0),
        (frame(7, b"\0\1"), layout.BYTES, 0),
        (b"\x40\x09", layout.STRINDEX, 9),
        (b"\x18\x05" + frame(1, b"later"), layout.STRING, 0),
        (frame(5, b"") + frame(5, b""), layout.ARRAY_IN_PIECES, 0),
        (frame(6, b"") + frame(6, b"") + frame(6, b""), layout.KVLIST_IN_PIECES, 0),
        (frame(5, b"") + frame(5, b"") + frame(6, b""), layout.KVLIST, 0),
        (frame(5, b"") + b"\x18\x05", layout.INT, 5),
    ],
)
def test_a_value_is_told_with_type_and_bits(engine: Any, value: bytes, kind: int, bits: int) -> None:
    _, cells = scan_span(engine, attribute(b"key", value))
    assert (cells[0]["type"], cells[0]["bits"]) == (kind, bits)
    assert cells[1]["type"] == layout.ABSENT


def test_a_value_in_several_fields_is_merged(engine: Any) -> None:
    body = frame(9, frame(1, b"key") + frame(2, b"\x18\x05") + frame(2, b""))
    _, cells = scan_span(engine, body)
    assert (cells[0]["type"], cells[0]["bits"]) == (layout.INT, 5)
    _, cells = scan_span(engine, frame(9, frame(1, b"key")))
    assert cells[0]["type"] == layout.EMPTY


def test_a_resource_in_pieces_behind_its_spans_is_read_whole_and_flagged(engine: Any) -> None:
    pieces = frame(1, attribute(b"x", b"", 1)) + frame(1, attribute(b"key", b"\x18\x07", 1))
    payload = frame(1, frame(2, frame(2, TRACE_ID + SPAN_ID)) + pieces)
    found = engine.scan(payload, "traces", KEYS)
    resource = np.frombuffer(found.resources, np.dtype(otlp.RESOURCE_DTYPE))[0]
    cell = np.frombuffer(found.resource_values, np.dtype(otlp.VALUE_DTYPE))[0]
    assert (resource["attribute_count"], resource["flags"]) == (2, layout.IN_PIECES)
    assert (cell["type"], cell["bits"]) == (layout.INT, 7)


def test_metric_data_of_another_kind_takes_the_place_of_what_came_before(engine: Any) -> None:
    body = frame(7, frame(1, b"") + b"\x10\x02\x18\x01") + frame(5, frame(1, b"")) + frame(5, frame(1, b""))
    found = engine.scan(request_of(body), "metrics", KEYS)
    row = np.frombuffer(found.records, np.dtype(otlp.METRIC_DTYPE))[0]
    assert (row["type"], row["point_count"], row["temporality"], row["is_monotonic"]) == (5, 2, 0, 0)


def test_bad_text_marks_the_resource_scope_or_record_that_holds_it(engine: Any) -> None:
    bad = attribute(b"\xff", b"")
    scope = frame(2, frame(2, b"") + frame(2, bad) + frame(3, b"\xff"))
    found = engine.scan(frame(1, scope) + frame(1, frame(3, b"\xff")), "traces", KEYS)
    marks = [
        np.frombuffer(rows, np.dtype(kind))["flags"] & layout.BAD_UTF8
        for rows, kind in (
            (found.resources, otlp.RESOURCE_DTYPE),
            (found.scopes, otlp.SCOPE_DTYPE),
            (found.records, otlp.SPAN_DTYPE),
        )
    ]
    assert [mark.tolist() for mark in marks] == [[0, 2], [2], [0, 2]]
    assert found.invalid_utf8_count == 3


@given(random=st.randoms(use_true_random=True))
@settings(max_examples=400, deadline=None)
def test_span_columns_say_what_protobuf_reads(
    make_request: Callable[[Random, str], bytes],
    lenient: dict[str, Any],
    oracle: Callable[[str, bytes], bool],
    random: Random,
) -> None:
    payload = make_request(random, "traces")
    if not oracle("traces", payload):
        return
    scan = otlp_twin.scan if otlp_native.find_scanner() is None else otlp_native.scan
    rows = np.frombuffer(scan(payload, "traces", KEYS).records, np.dtype(otlp.SPAN_DTYPE))
    spans = [
        (resource, span)
        for resource, group in enumerate(lenient["traces"].FromString(payload).resource_spans)
        for scope in group.scope_spans
        for span in scope.spans
    ]
    assert len(rows) == len(spans)
    for row, (resource, span) in zip(rows, spans, strict=True):
        assert row["resource"] == resource
        assert payload[row["name_offset"] :][: row["name_length"]] == span.name
        assert (row["start_ns"], row["end_ns"]) == (span.start_time_unix_nano, span.end_time_unix_nano)
        assert (row["kind"], row["status_code"], row["trace_flags"]) == (
            span.kind,
            span.status.code,
            span.flags,
        )
        counts = (row["attribute_count"], row["event_count"], row["link_count"])
        assert counts == (len(span.attributes), len(span.events), len(span.links))
        if len(span.trace_id) == 16:
            assert row["trace_id"].tobytes() == span.trace_id
