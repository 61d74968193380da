# What goes into the store comes out of it: bytes, attributes, links both ways, once each.
from collections.abc import Callable

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.reader import StoreReader
from otel_llmprism.exporters.store.stored import TraceQuery

Write = Callable[[bytes], tuple[int, int]]
Make = Callable[..., bytes]


def trace_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def span_id(number: int) -> bytes:
    return number.to_bytes(8, "big")


def search(reader: StoreReader, **conditions: object) -> list[int]:
    found = reader.find_traces(TraceQuery(**conditions))  # type: ignore[arg-type]
    assert not found.is_partial
    return [int.from_bytes(one, "big") for one in found.trace_ids]


def test_a_span_is_read_back_with_the_bytes_that_came(
    write: Write, make_request: Make, reader: StoreReader
) -> None:
    payload = make_request({"attributes": {"a": "text", "b": 7, "c": 1.5, "d": True}, "parent": 9})
    write(payload)
    (trace,) = reader.read_traces([trace_id(1)], 10)
    (span,) = trace.spans
    assert span.raw in payload
    assert Span.FromString(span.raw).span_id == span_id(1)
    assert span.detail.attributes == {"a": "text", "b": 7, "c": 1.5, "d": True}
    assert (span.service, span.name, span.parent_id) == ("shop", "work", span_id(9))
    assert (span.scope.name, span.scope.version) == ("made.up", "1.2")


def test_unknown_fields_of_a_span_are_kept(write: Write, make_request: Make, reader: StoreReader) -> None:
    unknown = b"\xa2\x06\x03new"  # field 100
    span = Span(trace_id=trace_id(1), span_id=span_id(1), name="x").SerializeToString() + unknown
    scope = b"\x12" + bytes([len(span)]) + span
    group = b"\x12" + bytes([len(scope)]) + scope
    write(b"\x0a" + bytes([len(group)]) + group)
    (trace,) = reader.read_traces([trace_id(1)], 10)
    assert trace.spans[0].raw == span
    assert trace.spans[0].service == "unknown_service"


def test_a_replayed_request_counts_once(write: Write, make_request: Make, catalog: StoreCatalog) -> None:
    payload = make_request({"span": 1}, {"span": 2})
    assert write(payload) == (2, 0)
    assert write(payload) == (0, 2)
    size = catalog.measure_size()
    assert (size.spans, size.blocks) == (2, 1)


def test_a_partly_replayed_request_adds_only_what_is_new(
    write: Write, make_request: Make, catalog: StoreCatalog, reader: StoreReader
) -> None:
    write(make_request({"span": 1, "links": [(5, 5)]}))
    assert write(make_request({"span": 1, "links": [(5, 5)]}, {"span": 2, "links": [(5, 5)]})) == (1, 1)
    assert catalog.measure_size().spans == 2
    links = reader.find_back_links((trace_id(5), span_id(5)), 10)
    assert sorted(back.source.span_id for back in links) == [span_id(1), span_id(2)]


def test_equal_spans_within_one_request_count_once(write: Write, make_request: Make) -> None:
    assert write(make_request({"span": 1}, {"span": 1})) == (1, 1)


def test_links_are_found_from_both_ends(write: Write, make_request: Make, reader: StoreReader) -> None:
    write(make_request({"trace": 1, "span": 1, "name": "llmprism.request"}))
    write(
        make_request({"trace": 2, "span": 2, "name": "llmprism.step", "links": [(1, 1), (8, 8)]}, service="e")
    )
    (back,) = reader.find_back_links((trace_id(1), span_id(1)), 10)
    assert (back.source.name, back.source.service, back.source.trace_id) == (
        "llmprism.step",
        "e",
        trace_id(2),
    )
    assert back.link.attributes == {"llmprism.request.tokens": 7}
    names = reader.read_names([(trace_id(1), span_id(1)), (trace_id(8), span_id(8))])
    assert [ref.name for ref in names.values()] == ["llmprism.request"]


def test_times_beyond_the_database_are_clamped(write: Write, make_request: Make, reader: StoreReader) -> None:
    write(make_request({"start": (1 << 64) - 1, "duration": 0}, {"span": 2, "start": 0, "duration": 0}))
    (trace,) = reader.read_traces([trace_id(1)], 10)
    assert [span.start_ns for span in trace.spans] == [0, (1 << 63) - 1]


def test_text_that_is_no_utf8_is_shown_and_kept(
    write: Write, make_request: Make, reader: StoreReader
) -> None:
    payload = make_request({"name": "NAME", "attributes": {"key": "VALUE"}})
    broken = payload.replace(b"NAME", b"N\xff\xfeE").replace(b"VALUE", b"V\x80\x80\x80E")
    write(broken)
    (trace,) = reader.read_traces([trace_id(1)], 10)
    (span,) = trace.spans
    assert b"V\x80\x80\x80E" in span.raw
    assert span.detail.attributes == {"key": "V???E"}
    assert span.name == "N��E"


def test_a_long_trace_is_cut_at_the_bound(write: Write, make_request: Make, reader: StoreReader) -> None:
    write(make_request(*({"span": number} for number in range(1, 11))))
    (trace,) = reader.read_traces([trace_id(1)], 4)
    assert len(trace.spans) == 4
    assert trace.is_cut


def test_operations_are_listed_with_their_kinds(
    write: Write, make_request: Make, catalog: StoreCatalog
) -> None:
    write(make_request({"name": "b", "kind": 2}, {"span": 2, "name": "a", "kind": 1}))
    write(make_request({"span": 3, "name": "c"}, service="other"))
    assert catalog.list_operations("shop") == [("shop", "a", 1), ("shop", "b", 2)]
    assert len(catalog.list_operations()) == 3
    assert catalog.list_operations("nobody") == []


def test_calls_between_services_are_counted(write: Write, make_request: Make, catalog: StoreCatalog) -> None:
    write(make_request({"span": 1}, service="front"))
    write(
        make_request(
            {"span": 2, "parent": 1}, {"span": 3, "parent": 1}, {"span": 4, "parent": 2}, service="back"
        )
    )
    assert catalog.count_calls(0, 10**18) == [("front", "back", 2)]
    assert catalog.count_calls(10**18, 10**18 + 1) == []


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, [3, 2, 1]),
        ({"service": "shop"}, [2, 1]),
        ({"service": "nobody"}, []),
        ({"operation": "buy"}, [3, 1]),
        ({"service": "shop", "operation": "buy"}, [1]),
        ({"operation": "never"}, []),
        ({"start_ns": 2000}, [3, 2]),
        ({"end_ns": 2000}, [2, 1]),
        ({"min_duration_ns": 50}, [3, 2]),
        ({"max_duration_ns": 49}, [1]),
        ({"has_error": True}, [2]),
        ({"has_error": False}, [3, 1]),
        ({"kind": 2}, [2]),
        ({"limit": 1}, [3]),
        ({"tags": {"llmprism.step.kind": "decode"}}, [3, 1]),
        ({"tags": {"llmprism.step.kind": "decode", "llmprism.step.id": "42"}}, [1]),
        ({"tags": {"llmprism.step.anomalous": "true"}}, [2]),
        ({"tags": {"own.key": "some value"}}, [2]),
        ({"tags": {"own.number": "2.5"}}, [3]),
        ({"tags": {"own.key": "some"}}, []),
        ({"tags": {"host.name": "node-1"}}, [3]),
        ({"tags": {"own.resource": "yes"}}, [3]),
        ({"tags": {"error": "true"}}, [2]),
        ({"tags": {"span.kind": "server"}}, [2]),
        ({"tags": {"otel.status_code": "ERROR", "own.key": "some value"}}, [2]),
        ({"tags": {"error": "false", "own.key": "some value"}}, []),
    ],
)
def test_search_finds_what_answers_to_every_condition(
    write: Write, make_request: Make, reader: StoreReader, conditions: dict[str, object], expected: list[int]
) -> None:
    step = {"llmprism.step.kind": "decode", "llmprism.step.id": 42}
    write(make_request({"trace": 1, "name": "buy", "start": 1000, "duration": 10, "attributes": step}))
    other: dict[str, object] = {"llmprism.step.anomalous": True, "own.key": "some value"}
    write(
        make_request(
            {
                "trace": 2,
                "name": "sell",
                "start": 2000,
                "duration": 50,
                "status": 2,
                "kind": 2,
                "attributes": other,
            }
        )
    )
    last: dict[str, object] = {"llmprism.step.kind": "decode", "own.number": 2.5}
    write(
        make_request(
            {"trace": 3, "name": "buy", "start": 3000, "duration": 90, "attributes": last},
            service="e",
            resource={"host.name": "node-1", "own.resource": "yes"},
        )
    )
    assert search(reader, **conditions) == expected


def test_a_trace_is_summed_up_from_its_root(write: Write, make_request: Make, reader: StoreReader) -> None:
    write(
        make_request(
            {"span": 2, "parent": 1, "name": "child", "start": 50, "duration": 100, "status": 2},
            {"span": 1, "name": "root", "start": 100, "duration": 20},
        )
    )
    (summary,) = reader.summarise_traces([trace_id(1), trace_id(2)])
    assert (summary.root.name, summary.start_ns, summary.duration_ns) == ("root", 50, 100)
    assert (summary.spans, summary.errors, summary.services) == (2, 1, ["shop"])
