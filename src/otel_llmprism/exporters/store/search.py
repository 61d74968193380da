# Finds traces: by time along an index of one service (or all, merged), or, when attributes are asked for,
# block by block, where the index or the bytes tell most blocks apart. Stops when enough were found.
import heapq
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from otel_llmprism.exporters.store.block_reader import BlockReader, Place
from otel_llmprism.exporters.store.decode import decode_span
from otel_llmprism.exporters.store.schema import TAG_PART_BITS
from otel_llmprism.exporters.store.searchable import MAX_INDEXED_VALUE, hash_tag
from otel_llmprism.exporters.store.stored import Found, TraceQuery
from otel_llmprism.exporters.store.tag_match import (
    COLUMN_TAGS,
    ERROR_STATUS,
    list_needles,
    match_attributes,
    match_columns,
)

_ROW = "start_ns, trace_id, kind, status, block, offset, length, resource, scope"
_BY_START = itemgetter(0)
_Row = Sequence[Any]


def find_traces(
    connection: sqlite3.Connection, query: TraceQuery, indexed_keys: Collection[str], limit_s: float
) -> Found:
    """Return the ids of up to `query.limit` traces; what was found until `limit_s` when time runs out."""
    give_up_at = time.monotonic() + limit_s
    services = _list_service_ids(connection, query.service)
    name = _find_text(connection, query.operation) if query.operation is not None else None
    if not services or (query.operation is not None and name is None):
        return Found((), is_partial=False)
    search = _Search(connection, query, services, name, lambda: time.monotonic() > give_up_at)
    found: dict[bytes, int] = {}
    for row in search.list_candidates(indexed_keys):
        if search.is_late():
            break
        trace_id, start_ns = row[1], row[0]
        if trace_id not in found and search.matches(row):
            found[trace_id] = start_ns
            if len(found) >= query.limit:
                break
    newest_first = sorted(found, key=lambda trace_id: -found[trace_id])
    return Found(newest_first, is_partial=len(found) < query.limit and search.is_late())


class _Search:
    """One search under way: where candidates come from, and which of them match."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        query: TraceQuery,
        services: Sequence[int],
        name: int | None,
        is_late: Callable[[], bool],
    ) -> None:
        self.is_late = is_late
        self._connection = connection
        self._query = query
        self._services = services
        self._name = name
        self._reader = BlockReader(connection)
        # These are told by columns; what is left has to be looked for in the bytes.
        self._tags = {key: value for key, value in query.tags.items() if key not in COLUMN_TAGS}
        self._needles = list_needles(self._tags)

    def list_candidates(self, indexed_keys: Collection[str]) -> Iterator[_Row]:
        """Give the spans that may match, newest first (block by block where bytes must be looked at)."""
        if self._tags:
            return self._walk_blocks(_list_blocks(self._connection, self._tags, indexed_keys))
        return self._walk_time()

    def matches(self, row: _Row) -> bool:
        if not match_columns(row[2], row[3], self._query.tags):
            return False
        if not self._tags:
            return True
        place = Place(*row[4:9])
        raw, resource = self._reader.read_raw(place), self._reader.read_resource(place)
        # Few spans are worth decoding: the others lack the key, or the text that it must have.
        if not resource.keys() & self._tags and not all(needle in raw for needle in self._needles):
            return False
        try:
            return match_attributes(decode_span(raw), resource, self._tags)
        except ValueError:
            return False

    def _walk_time(self) -> Iterator[_Row]:
        where, values = _build_conditions(self._query, self._name)
        sql = f"SELECT {_ROW} FROM span WHERE service = ? {where} ORDER BY start_ns DESC"  # noqa: S608 - fixed texts
        cursors = [self._connection.execute(sql, (service, *values)) for service in self._services]
        return heapq.merge(*cursors, key=_BY_START, reverse=True)

    def _walk_blocks(self, blocks: Iterable[tuple[int, int, int]]) -> Iterator[_Row]:
        where, values = _build_conditions(self._query, self._name)
        # The unary plus keeps SQLite on the range of ids: the time index would be a walk through all spans.
        where = where.replace("AND ", "AND +")
        sql = f"SELECT {_ROW}, service FROM span WHERE id BETWEEN ? AND ? {where}"  # noqa: S608 - fixed texts
        wanted = frozenset(self._services)
        for block, first_span, last_span in blocks:
            if self.is_late():
                return
            rows = self._connection.execute(sql, (first_span, last_span, *values)).fetchall()
            rows = [row for row in rows if row[9] in wanted]
            if rows and self._reader.holds_all(block, self._needles):
                yield from sorted(rows, key=_BY_START, reverse=True)


def _build_conditions(query: TraceQuery, name: int | None) -> tuple[str, list[int]]:
    where = ["AND start_ns >= ? AND start_ns <= ? AND duration_ns >= ? AND duration_ns <= ?"]
    values = [query.start_ns, query.end_ns, query.min_duration_ns, query.max_duration_ns]
    if name is not None:
        where.append("AND name = ?")
        values.append(name)
    if query.kind is not None:
        where.append("AND kind = ?")
        values.append(query.kind)
    if query.has_error is not None:
        where.append("AND status = ?" if query.has_error else "AND status <> ?")
        values.append(ERROR_STATUS)
    return " ".join(where), values


def _list_blocks(
    connection: sqlite3.Connection, tags: Mapping[str, str], indexed_keys: Collection[str]
) -> Iterable[tuple[int, int, int]]:
    """Give id and span bounds of the blocks that may hold the indexed ones of `tags`, newest first."""
    bounds = "SELECT id, first_span, last_span FROM block"
    chosen: set[int] | None = None
    for key, value in tags.items():
        raw = value.encode()
        if key in indexed_keys and len(raw) <= MAX_INDEXED_VALUE:
            blocks = _find_tagged(connection, hash_tag(key, raw))
            chosen = blocks if chosen is None else chosen & blocks
    if chosen is None:
        return connection.execute(f"{bounds} ORDER BY id DESC")
    found = (
        connection.execute(f"{bounds} WHERE id = ?", (block,)).fetchone()
        for block in sorted(chosen, reverse=True)
    )
    return (row for row in found if row is not None)


def _find_tagged(connection: sqlite3.Connection, tag: int) -> set[int]:
    first, last = connection.execute("SELECT min(first_tag), max(last_tag) FROM block").fetchone()
    if first is None:
        return set()
    parts = range(first >> TAG_PART_BITS, (last >> TAG_PART_BITS) + 1)
    sql = "SELECT block FROM tag WHERE (id >> 18) = ? AND hash = ?"
    return {row[0] for part in parts for row in connection.execute(sql, (part, tag))}


def _list_service_ids(connection: sqlite3.Connection, service: str | None) -> list[int]:
    if service is None:
        return [row[0] for row in connection.execute("SELECT DISTINCT service FROM operation")]
    known = _find_text(connection, service)
    return [] if known is None else [known]


def _find_text(connection: sqlite3.Connection, text: str) -> int | None:
    row = connection.execute("SELECT id FROM text WHERE text = ?", (text,)).fetchone()
    return None if row is None else int(row[0])
