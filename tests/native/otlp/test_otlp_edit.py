# Edits leave everything as it came, message for message, apart from what was asked.
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.native import otlp, otlp_native, otlp_twin, otlp_twin_edit
from otel_llmprism.native import otlp_layout as layout

KEYS = otlp.KeySelection(("key",))
SIGNALS = ("traces", "logs", "metrics")
LISTS = {
    "traces": ("resource_spans", "scope_spans", "spans"),
    "logs": ("resource_logs", "scope_logs", "log_records"),
    "metrics": ("resource_metrics", "scope_metrics", "metrics"),
}


def list_records(signal: str, message: Any) -> list[Any]:
    resources, scopes, records = LISTS[signal]
    return [
        record
        for resource in getattr(message, resources)
        for scope in getattr(resource, scopes)
        for record in getattr(scope, records)
    ]


def attributes_of(signal: str, record: Any) -> Any:
    return record.metadata if signal == "metrics" else record.attributes


def build_trace(names: list[list[str]]) -> bytes:
    request = ExportTraceServiceRequest()
    for number, group in enumerate(names):
        resource = request.resource_spans.add(schema_url="url")
        resource.resource.attributes.add(key="r").value.int_value = number
        scope = resource.scope_spans.add(schema_url="url")
        scope.scope.name = "scope"
        for name in group:
            span = scope.spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, name=name)
            span.attributes.add(key="key").value.string_value = "had"
    return request.SerializeToString()


def draw_edits(random: Random, signal: str, count: int) -> list[tuple[int, bytes]]:
    keys = ["key", "abc", "", "new", "h\u00e9"]
    values: list[otlp.Scalar] = ["text", 1, -1, 1.5, True, b"raw"]

    def draw_fields() -> bytes:
        fields = [
            otlp.encode_attribute(signal, random.choice(keys), random.choice(values))
            for _ in range(random.randint(1, 4))
        ]
        if signal == "traces" and random.random() < 0.3:
            fields.append(otlp.encode_link(b"t" * 16, b"s" * 8, {"n": random.randint(1, 2)}))
        return b"".join(fields)

    return [(random.randrange(count), draw_fields()) for _ in range(random.randint(1, 5))]


@given(random=st.randoms(use_true_random=True), signal=st.sampled_from(SIGNALS))
@settings(max_examples=150, deadline=None)
def test_native_and_twin_edit_byte_for_byte_alike(
    make_request: Callable[[Random, str], bytes], random: Random, signal: str
) -> None:
    if otlp_native.find_scanner() is None:
        pytest.skip("libllmprism is not built here")
    payload, found = draw_sound_request(make_request, random, signal)
    keep = bytes(random.choices([0, 1], k=found.record_count))
    assert otlp_native.select(payload, found, keep) == otlp_twin_edit.select(payload, found, keep)
    first = random.randrange(found.record_count)
    last = random.randint(first, found.record_count)
    assert otlp_native.cut(payload, found, first, last) == otlp_twin_edit.cut(payload, found, first, last)
    edits = draw_edits(random, signal, found.record_count)
    appended = otlp_native.append_fields(payload, found, edits)
    assert appended == otlp_twin_edit.append_fields(payload, found, edits)


@given(random=st.randoms(use_true_random=True), signal=st.sampled_from(SIGNALS))
@settings(max_examples=150, deadline=None)
def test_an_enriched_request_differs_only_by_the_appended_attributes_and_only_once(
    make_request: Callable[[Random, str], bytes], lenient: dict[str, Any], random: Random, signal: str
) -> None:
    payload, found = draw_sound_request(make_request, random, signal)
    edits = draw_edits(random, signal, found.record_count)
    enriched = otlp.append_attributes(payload, found, edits)
    again = otlp.scan(enriched, signal, KEYS)
    assert otlp.append_attributes(enriched, again, edits) is enriched

    before, after = lenient[signal].FromString(payload), lenient[signal].FromString(enriched)
    wanted: dict[int, set[bytes]] = {}
    for index, blob in edits:
        for (tag, key), _ in otlp_twin_edit.list_identities(
            blob, 0, len(blob), layout.ATTRIBUTE_TAGS[signal]
        ):
            if tag == layout.ATTRIBUTE_TAGS[signal]:
                wanted.setdefault(index, set()).add(key)
    for index, (old, new) in enumerate(
        zip(list_records(signal, before), list_records(signal, after), strict=True)
    ):
        had = {pair.key for pair in attributes_of(signal, old)}
        added = attributes_of(signal, new)[len(attributes_of(signal, old)) :]
        assert sorted(pair.key for pair in added) == sorted(wanted.get(index, set()) - had)
        del attributes_of(signal, new)[len(attributes_of(signal, old)) :]
        if signal == "traces":
            del new.links[len(old.links) :]
    assert before == after
    assert before.SerializeToString(deterministic=True) == after.SerializeToString(deterministic=True)


@given(random=st.randoms(use_true_random=True), signal=st.sampled_from(SIGNALS))
@settings(max_examples=150, deadline=None)
def test_pieces_of_a_request_hold_every_record_once_and_in_order(
    make_request: Callable[[Random, str], bytes], lenient: dict[str, Any], random: Random, signal: str
) -> None:
    payload, found = draw_sound_request(make_request, random, signal)
    limit = random.randint(1, len(payload) + 1)
    pieces = otlp.split(payload, found, limit)
    for piece in pieces:
        assert len(piece) <= limit or otlp.scan(piece, signal, KEYS).record_count <= 1
    whole = list_records(signal, lenient[signal].FromString(payload))
    assert list_records(signal, lenient[signal].FromString(b"".join(pieces))) == whole


@given(random=st.randoms(use_true_random=True), signal=st.sampled_from(SIGNALS))
@settings(max_examples=150, deadline=None)
def test_a_selection_and_its_opposite_merge_to_the_same_records_in_their_envelopes(
    make_request: Callable[[Random, str], bytes], lenient: dict[str, Any], random: Random, signal: str
) -> None:
    payload, found = draw_sound_request(make_request, random, signal)
    keep = bytes(random.choices([0, 1], k=found.record_count))
    rest = bytes(1 - kept for kept in keep)
    merged = otlp.select(payload, found, keep) + otlp.select(payload, found, rest)

    def describe(raw: bytes) -> list[bytes]:
        resources, scopes, records = LISTS[signal]
        described = []
        for resource in getattr(lenient[signal].FromString(raw), resources):
            for scope in getattr(resource, scopes):
                envelope = (resource.resource, resource.schema_url, scope.scope, scope.schema_url)
                described += [repr((*envelope, record)).encode() for record in getattr(scope, records)]
        return sorted(described)

    assert describe(merged) == describe(payload)


def test_what_nothing_is_done_to_stays_the_same_object(engine: Any) -> None:
    payload = build_trace([["a"], ["b"]])
    found = engine.scan(payload, "traces", KEYS)
    assert engine.select(payload, found, b"\1\1") is payload
    assert engine.append_fields(payload, found, []) is payload
    had = otlp.encode_attribute("traces", "key", "new value")
    assert engine.append_fields(payload, found, [(0, had)]) is payload


def test_a_selection_drops_scopes_and_resources_that_it_leaves_empty(
    engine: Any, messages: dict[str, Any]
) -> None:
    payload = build_trace([["a", "b"], ["c"], []])
    found = engine.scan(payload, "traces", KEYS)
    kept = messages["traces"].FromString(engine.select(payload, found, b"\0\1\0"))
    assert [resource.resource.attributes[0].value.int_value for resource in kept.resource_spans] == [0, 2]
    assert [span.name for span in list_records("traces", kept)] == ["b"]
    assert kept.resource_spans[0].schema_url == "url"


def test_fields_asked_for_twice_are_appended_once_and_links_only_when_new(
    engine: Any, messages: dict[str, Any]
) -> None:
    payload = build_trace([["a", "b"]])
    found = engine.scan(payload, "traces", KEYS)
    link = otlp.encode_link(b"t" * 16, b"s" * 8, {"llmprism.request.tokens": 3})
    first, second = (otlp.encode_attribute("traces", "new", value) for value in (1, 2))
    edited = engine.append_fields(payload, found, [(1, link + first), (0, first), (1, second + link)])
    a, b = list_records("traces", messages["traces"].FromString(edited))
    assert [pair.key for pair in b.attributes] == ["key", "new"]
    assert b.attributes[1].value.int_value == 1
    assert (len(a.links), len(b.links), b.links[0].attributes[0].value.int_value) == (0, 1, 3)


def test_lengths_that_outgrow_their_varint_are_rewritten(engine: Any, messages: dict[str, Any]) -> None:
    payload = build_trace([["a"]])
    for size in (100, 128, 20_000, 3_000_000):
        found = engine.scan(payload, "traces", KEYS)
        fields = otlp.encode_attribute("traces", f"k{size}", "x" * size)
        payload = engine.append_fields(payload, found, [(0, fields)])
    (span,) = list_records("traces", messages["traces"].FromString(payload))
    assert [len(pair.value.string_value) for pair in span.attributes] == [3, 100, 128, 20_000, 3_000_000]


@pytest.mark.parametrize("broken", [b"\x4a", b"\x4a\x05ab", b"\x00", b"\x4a\x02\x0a\x05"])
def test_an_edit_that_is_no_whole_field_is_refused(engine: Any, broken: bytes) -> None:
    payload = build_trace([["a"]])
    found = engine.scan(payload, "traces", KEYS)
    with pytest.raises(otlp.MalformedRequestError):
        engine.append_fields(payload, found, [(0, broken)])


def test_rows_of_another_payload_are_refused_not_followed() -> None:
    if otlp_native.find_scanner() is None:
        pytest.skip("libllmprism is not built here")
    payload, other = build_trace([["a"], ["bb", "c"]]), build_trace([["aaa", "a"], ["b"]])
    found = otlp.scan(payload, "traces", KEYS)
    random = Random(7)
    refused = 0
    for _ in range(300):
        resources, scopes, records = (
            bytearray(rows) for rows in (found.resources, found.scopes, found.records)
        )
        for rows in (resources, scopes, records):
            rows[random.randrange(len(rows))] ^= 1 << random.randrange(8)
        forged = replace(
            found,
            payload_size=len(other),
            resources=bytes(resources),
            scopes=bytes(scopes),
            records=bytes(records),
        )
        try:
            otlp_native.select(other, forged, b"\1\0\1")
            otlp_native.append_fields(other, forged, [(1, otlp.encode_attribute("traces", "k", 1))])
        except ValueError as error:
            refused += "another payload" in str(error)
    assert refused > 100


@pytest.mark.parametrize(
    "misuse",
    [
        lambda payload, found: otlp.select(payload, found, b"\1"),
        lambda payload, found: otlp.select(payload + b"x", found, b"\1\1"),
        lambda payload, found: otlp.append_attributes(payload, found, [(2, b"")]),
        lambda payload, found: otlp.append_attributes(payload, found, [(-1, b"")]),
        lambda payload, _: otlp.scan(payload, "profiles", KEYS),
        lambda *_: otlp.KeySelection(("a", "a")),
        lambda *_: otlp.KeySelection([str(number) for number in range(65)]),
        lambda *_: otlp.encode_attribute("traces", "k", 1 << 63),
        lambda *_: otlp.encode_link(b"short", b"s" * 8),
    ],
)
def test_misuse_is_told_in_words(misuse: Callable[[bytes, otlp.Scan], object]) -> None:
    payload = build_trace([["a", "b"]])
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        misuse(payload, otlp.scan(payload, "traces", KEYS))


@pytest.mark.parametrize("value", ["text", "", 0, -1, (1 << 63) - 1, -(1 << 63), 1.5, True, False, b"\xff"])
def test_an_encoded_attribute_reads_back_as_its_value(messages: dict[str, Any], value: otlp.Scalar) -> None:
    payload = build_trace([["a"]])
    found = otlp.scan(payload, "traces", KEYS)
    edited = otlp.append_attributes(payload, found, [(0, otlp.encode_attribute("traces", "v", value))])
    read = list_records("traces", messages["traces"].FromString(edited))[0].attributes[1].value
    assert getattr(read, read.WhichOneof("value")) == value


def test_without_the_library_the_public_functions_use_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = build_trace([["a", "b"]])
    expected = otlp.scan(payload, "traces", KEYS)
    monkeypatch.setattr(otlp_native, "find_scanner", lambda: None)
    found = otlp.scan(payload, "traces", KEYS)
    assert found == expected
    assert otlp.scan(otlp.select(payload, found, b"\0\1"), "traces", KEYS).record_count == 1
    edited = otlp.append_attributes(payload, found, [(0, otlp.encode_attribute("traces", "n", 1))])
    assert len(edited) > len(payload)
    assert len(otlp.split(payload, found, 1)) == 2


def draw_sound_request(
    make_request: Callable[[Random, str], bytes], random: Random, signal: str
) -> tuple[bytes, otlp.Scan]:
    """Draw until a request is well framed and holds at least one record."""
    while True:
        payload = make_request(random, signal)
        try:
            found = otlp_twin.scan(payload, signal, KEYS)
        except otlp.MalformedRequestError:
            continue
        if found.record_count:
            return payload, found
