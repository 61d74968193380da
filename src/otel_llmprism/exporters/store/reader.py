# The questions about traces: search, whole traces, names behind ids, links backwards. Any thread; each
# question sees one committed state while the writer goes on.
import sqlite3
from collections.abc import Collection, Iterable

from otel_llmprism.exporters.store.block_reader import COLUMNS, JOINS, BlockReader
from otel_llmprism.exporters.store.connection_pool import QUESTION_S, ConnectionPool
from otel_llmprism.exporters.store.search import find_traces
from otel_llmprism.exporters.store.stored import (
    BackLink,
    Found,
    SpanRef,
    StoredTrace,
    TraceQuery,
    TraceSummary,
)
from otel_llmprism.exporters.store.tag_match import ERROR_STATUS

SEARCH_S = 5.0
MAX_SUMMED_SPANS = 5000

_REF = "span.trace_id, span.span_id, service.text, name.text, span.start_ns, span.duration_ns"

Ids = tuple[bytes, bytes]  # trace id, span id


class StoreReader:
    """Raises QuestionTooLongError or StoreUnreadableError."""

    def __init__(self, pool: ConnectionPool, indexed_keys: Collection[str]) -> None:
        self._pool = pool
        self._indexed_keys = frozenset(indexed_keys)

    def find_traces(self, query: TraceQuery) -> Found:
        """Return the newest traces that hold a span answering to all of `query`."""
        with self._pool.connect(QUESTION_S) as connection:
            return find_traces(connection, query, self._indexed_keys, SEARCH_S)

    def read_traces(self, trace_ids: Iterable[bytes], max_spans: int) -> list[StoredTrace]:
        """Return the known ones of these traces, in this order, with at most `max_spans` spans in all."""
        traces: list[StoredTrace] = []
        with self._pool.connect(QUESTION_S) as connection:
            reader = BlockReader(connection)
            for trace_id in trace_ids:
                trace = _read_trace(connection, reader, trace_id, max_spans)
                max_spans -= len(trace.spans)
                if trace.spans:
                    traces.append(trace)
        return traces

    def summarise_traces(self, trace_ids: Iterable[bytes]) -> list[TraceSummary]:
        """Return one line for each known one of these traces, in this order."""
        with self._pool.connect(QUESTION_S) as connection:
            found = (_summarise_trace(connection, trace_id) for trace_id in trace_ids)
            return [summary for summary in found if summary is not None]

    def read_names(self, ids: Iterable[Ids]) -> dict[Ids, SpanRef]:
        """Return what the store knows about these spans."""
        with self._pool.connect(QUESTION_S) as connection:
            found = (_read_ref(connection, *one) for one in dict.fromkeys(ids))
            return {(ref.trace_id, ref.span_id): ref for ref in found if ref is not None}

    def find_back_links(self, target: Ids, limit: int) -> list[BackLink]:
        """Return the spans that link to `target`, newest first, each with its link."""
        with self._pool.connect(QUESTION_S) as connection:
            rows = connection.execute(
                f"SELECT {COLUMNS} FROM link JOIN {JOINS} "  # noqa: S608 - fixed texts
                "WHERE link.target_trace = ? AND link.target_span = ? AND span.id = link.span "
                "ORDER BY span.start_ns DESC LIMIT ?",
                (*target, limit),
            ).fetchall()
            reader = BlockReader(connection)
            spans = [reader.read_span(row) for row in rows]
        return [
            BackLink(
                SpanRef(
                    span.trace_id, span.span_id, span.service, span.name, span.start_ns, span.duration_ns
                ),
                next(link for link in span.detail.links if (link.trace_id, link.span_id) == target),
            )
            for span in spans
            if any((link.trace_id, link.span_id) == target for link in span.detail.links)
        ]


def _read_trace(
    connection: sqlite3.Connection, reader: BlockReader, trace_id: bytes, max_spans: int
) -> StoredTrace:
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM {JOINS} WHERE span.trace_id = ? ORDER BY span.id LIMIT ?",  # noqa: S608 - fixed texts
        (trace_id, max_spans + 1),
    ).fetchall()
    spans = [reader.read_span(row) for row in rows[:max_spans]]
    spans.sort(key=lambda span: span.start_ns)
    return StoredTrace(trace_id, spans, is_cut=len(rows) > max_spans)


def _summarise_trace(connection: sqlite3.Connection, trace_id: bytes) -> TraceSummary | None:
    rows = connection.execute(
        f"SELECT {_REF}, span.parent_id, span.status FROM {JOINS} WHERE span.trace_id = ? LIMIT ?",  # noqa: S608 - fixed texts
        (trace_id, MAX_SUMMED_SPANS + 1),
    ).fetchall()
    if not rows:
        return None
    spans = sorted((SpanRef(*row[:6]) for row in rows[:MAX_SUMMED_SPANS]), key=lambda ref: ref.start_ns)
    roots = {row[1] for row in rows if not row[6]}
    start_ns = spans[0].start_ns
    return TraceSummary(
        root=next((ref for ref in spans if ref.span_id in roots), spans[0]),
        start_ns=start_ns,
        duration_ns=max(ref.start_ns + ref.duration_ns for ref in spans) - start_ns,
        services=sorted({ref.service for ref in spans}),
        spans=len(spans),
        errors=sum(row[7] == ERROR_STATUS for row in rows[:MAX_SUMMED_SPANS]),
        is_cut=len(rows) > MAX_SUMMED_SPANS,
    )


def _read_ref(connection: sqlite3.Connection, trace_id: bytes, span_id: bytes) -> SpanRef | None:
    row = connection.execute(
        f"SELECT {_REF} FROM {JOINS} WHERE span.trace_id = ? AND span.span_id = ?",  # noqa: S608 - fixed texts
        (trace_id, span_id),
    ).fetchone()
    return None if row is None else SpanRef(*row)
