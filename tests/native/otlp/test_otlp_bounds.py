# Hostile sizes: linear work, bounded memory, refusals that say what to do.
from typing import Any

import pytest

from otel_llmprism.native import otlp, otlp_native, otlp_twin, otlp_twin_wire
from otel_llmprism.native import otlp_layout as layout

KEYS = otlp.KeySelection(("last", "k0"))
A_MILLION = 1_000_000


def varint(value: int) -> bytes:
    return otlp_twin_wire.encode_varint(value)


def frame(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def span_with(attributes: int) -> bytes:
    body = b"".join(frame(9, frame(1, b"k%d" % number)) for number in range(attributes))
    return frame(1, frame(2, frame(2, body + frame(9, frame(1, b"last") + frame(2, b"\x18\x07")))))


def test_a_million_attributes_in_one_span_are_read_and_appended_to(engine: Any) -> None:
    count = A_MILLION if engine.scan is otlp_native.scan else 20_000
    payload = span_with(count)
    found = engine.scan(payload, "traces", KEYS)
    assert int.from_bytes(found.records[92:96], "little") == count + 1
    assert found.values[:8] == bytes([7, 0, 0, 0, 0, 0, 0, 0])
    many = b"".join(otlp.encode_attribute("traces", f"k{number}", 1) for number in range(count + 100))
    edited = engine.append_fields(payload, found, [(0, many)])
    assert int.from_bytes(engine.scan(edited, "traces", KEYS).records[92:96], "little") == count + 101


def test_the_twin_reads_each_field_a_fixed_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    read_field = otlp_twin_wire.read_field

    def count_calls(data: bytes, pos: int, end: int, depth: int) -> tuple[int, int, int, int]:
        nonlocal calls
        calls += 1
        return read_field(data, pos, end, depth)

    for module in ("otlp_twin", "otlp_twin_record", "otlp_twin_value", "otlp_twin_walk"):
        monkeypatch.setattr(f"otel_llmprism.native.{module}.read_field", count_calls)
    counts = []
    for attributes in (1000, 2000, 4000):
        calls = 0
        otlp_twin.scan(span_with(attributes), "traces", KEYS)
        counts.append(calls)
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])


def test_empty_records_cannot_make_a_small_request_cost_gigabytes(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = layout.MAX_ROWS
    if engine.scan is otlp_twin.scan:  # the same check on a smaller number, or it takes minutes
        most = 100
        monkeypatch.setattr(layout, "MAX_ROWS", most)
    fits = frame(1, frame(2, b"\x12\x00" * most))
    assert engine.scan(fits, "logs", otlp.NO_KEYS).record_count == most
    with pytest.raises(otlp.MalformedRequestError, match="send smaller ones"):
        engine.scan(frame(1, frame(2, b"\x12\x00" * (most + 1))), "logs", otlp.NO_KEYS)
    with pytest.raises(otlp.MalformedRequestError, match="send smaller ones"):
        engine.scan(b"\x0a\x00" * (most + 1), "logs", otlp.NO_KEYS)


def test_selected_values_are_bounded_too(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = otlp.KeySelection([str(number) for number in range(64)])
    most = layout.MAX_CELLS // 64
    if engine.scan is otlp_twin.scan:
        most = 10
        monkeypatch.setattr(layout, "MAX_CELLS", 64 * most)
    with pytest.raises(otlp.MalformedRequestError, match="send smaller ones"):
        engine.scan(frame(1, frame(2, b"\x12\x00" * (most + 1))), "logs", keys)


def test_deep_nesting_is_refused_before_the_stack_ends(engine: Any) -> None:
    body = b""
    for _ in range(20_000):
        body = frame(5, frame(1, body)) if len(body) < 100_000 else body
    payload = frame(1, frame(2, frame(2, frame(9, frame(2, body)))))
    with pytest.raises(otlp.MalformedRequestError, match="deeper than 100"):
        engine.scan(payload, "traces", KEYS)
    groups = b"\x93\x03" * 200_000
    with pytest.raises(otlp.MalformedRequestError, match="deeper than 100"):
        engine.scan(groups, "traces", KEYS)
