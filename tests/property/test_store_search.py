# A search finds exactly the traces that looking at every span would find, newest first; and a store
# that is written in any pieces and repeats holds each span once.
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.config import StoreConfig
from otel_llmprism.exporters.store.connection_pool import ConnectionPool
from otel_llmprism.exporters.store.reader import StoreReader
from otel_llmprism.exporters.store.scan_columns import SpanColumns
from otel_llmprism.exporters.store.searchable import RESOURCE_KEYS, SPAN_KEYS
from otel_llmprism.exporters.store.store import SpanStore
from otel_llmprism.exporters.store.stored import TraceQuery

COLUMNS = SpanColumns(SPAN_KEYS, RESOURCE_KEYS)
KEYS = ("llmprism.step.kind", "own.key")  # indexed, and not
VALUES = ("decode", "7", "true", "", "ü" * 200)

SPANS = st.fixed_dictionaries(
    {
        "trace": st.integers(1, 6),
        "span": st.integers(1, 12),
        "service": st.sampled_from(["a", "b"]),
        "name": st.sampled_from(["x", "y"]),
        "start": st.integers(0, 50),
        "duration": st.integers(0, 9),
        "status": st.integers(0, 2),
        "tags": st.dictionaries(st.sampled_from(KEYS), st.sampled_from([*VALUES, 7, True])),
    }
)
QUERIES = st.builds(
    TraceQuery,
    service=st.sampled_from([None, "a", "b", "c"]),
    operation=st.sampled_from([None, "x", "z"]),
    has_error=st.sampled_from([None, True, False]),
    tags=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2),
    start_ns=st.integers(0, 30),
    end_ns=st.integers(20, 60),
    min_duration_ns=st.integers(0, 3),
    max_duration_ns=st.integers(3, 9),
    limit=st.integers(1, 8),
)


def build_request(spans: list[dict[str, Any]]) -> bytes:
    request = ExportTraceServiceRequest()
    for fields in spans:
        group = request.resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = fields["service"]
        span = group.scope_spans.add().spans.add(name=fields["name"])
        span.trace_id = fields["trace"].to_bytes(16, "big")
        span.span_id = fields["span"].to_bytes(8, "big")
        span.status.code = fields["status"]
        span.start_time_unix_nano = fields["start"]
        span.end_time_unix_nano = fields["start"] + fields["duration"]
        for key, value in fields["tags"].items():
            pair = span.attributes.add(key=key)
            if isinstance(value, bool):
                pair.value.bool_value = value
            elif isinstance(value, int):
                pair.value.int_value = value
            else:
                pair.value.string_value = value
    return request.SerializeToString()


def matches(span: dict[str, Any], query: TraceQuery) -> bool:
    texts = {key: str(value).lower() if value is True else str(value) for key, value in span["tags"].items()}
    return (
        query.service in {None, span["service"]}
        and query.operation in {None, span["name"]}
        and query.has_error in {None, span["status"] == 2}
        and query.start_ns <= span["start"] <= query.end_ns
        and query.min_duration_ns <= span["duration"] <= query.max_duration_ns
        and all(texts.get(key) == value for key, value in query.tags.items())
    )


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.lists(SPANS, min_size=1, max_size=8), max_size=6), st.lists(QUERIES, min_size=1, max_size=6)
)
def test_search_agrees_with_looking_at_every_span(
    requests: list[list[dict[str, Any]]], queries: list[TraceQuery]
) -> None:
    first: dict[tuple[int, int], dict[str, Any]] = {}
    for span in (span for request in requests for span in request):
        first.setdefault((span["trace"], span["span"]), span)
    with tempfile.TemporaryDirectory() as folder:
        store = SpanStore(StoreConfig(Path(folder)), lambda: 1)
        for payload in [build_request(request) for request in requests] * 2:
            store.write_spans(payload, COLUMNS.read_rows(payload))
        pool = ConnectionPool(store.path)
        reader = StoreReader(pool, {*SPAN_KEYS, *RESOURCE_KEYS})
        assert StoreCatalog(pool).measure_size().spans == len(first)
        for query in queries:
            found = [int.from_bytes(one, "big") for one in reader.find_traces(query).trace_ids]
            expected = {span["trace"] for span in first.values() if matches(span, query)}
            assert len(found) == min(len(expected), query.limit)
            assert set(found) <= expected
        pool.close()
        store.close()
