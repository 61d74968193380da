# Finds traces: by time along an index of one service (or all, merged), or, when an indexed attribute is
# asked for, through the blocks that hold its value. Newest first; stops when enough were found.
import heapq
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from otel_llmprism.exporters.store.block_reader import BlockReader, Place
from otel_llmprism.exporters.store.decode import decode_span
from otel_llmprism.exporters.store.searchable import MAX_INDEXED_VALUE, hash_tag
from otel_llmprism.exporters.store.stored import Found, TraceQuery
from otel_llmprism.exporters.store.tag_match import ERROR_STATUS, match_attributes, match_columns

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
    blocks = _list_blocks(connection, query.tags, indexed_keys)
    rows = (
        _walk_time(connection, query, services, name)
        if blocks is None
        else _walk_blocks(connection, query, services, name, blocks)
    )
    reader = BlockReader(connection)
    found: dict[bytes, int] = {}
    is_partial = False
    for row in rows:
        if time.monotonic() > give_up_at:
            is_partial = True
            break
        trace_id, start_ns = row[1], row[0]
        if trace_id not in found and _matches(reader, row, query.tags):
            found[trace_id] = start_ns
            if len(found) >= query.limit:
                break
    return Found(sorted(found, key=lambda trace_id: -found[trace_id]), is_partial)


def _matches(reader: BlockReader, row: _Row, tags: Mapping[str, str]) -> bool:
    if not tags:
        return True
    kind, status = row[2], row[3]
    others = match_columns(kind, status, tags)
    if not others:
        return others is not None
    place = Place(*row[4:9])
    resource = reader.read_resource(place)
    raw = reader.read_raw(place)
    # A span whose bytes do not even hold the key need not be decoded.
    if any(key not in resource and key.encode() not in raw for key in others):
        return False
    try:
        return match_attributes(decode_span(raw), resource, others)
    except ValueError:
        return False


def _walk_time(
    connection: sqlite3.Connection, query: TraceQuery, services: Sequence[int], name: int | None
) -> Iterator[_Row]:
    where, values = _build_conditions(query, name)
    sql = f"SELECT {_ROW} FROM span WHERE service = ? {where} ORDER BY start_ns DESC"  # noqa: S608 - fixed texts
    cursors = [connection.execute(sql, (service, *values)) for service in services]
    return heapq.merge(*cursors, key=_BY_START, reverse=True)


def _walk_blocks(
    connection: sqlite3.Connection,
    query: TraceQuery,
    services: Sequence[int],
    name: int | None,
    blocks: Sequence[int],
) -> Iterator[_Row]:
    where, values = _build_conditions(query, name)
    # The unary plus keeps SQLite on the range of ids: the time index would be a walk through all spans.
    sql = f"SELECT {_ROW}, service FROM span WHERE id BETWEEN ? AND ? {where.replace('AND ', 'AND +')}"  # noqa: S608 - fixed texts
    wanted = frozenset(services)
    for block in blocks:
        bounds = connection.execute(
            "SELECT first_span, last_span FROM block WHERE id = ?", (block,)
        ).fetchone()
        if bounds is not None:
            rows = connection.execute(sql, (*bounds, *values)).fetchall()
            yield from sorted((row for row in rows if row[9] in wanted), key=_BY_START, reverse=True)


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
) -> list[int] | None:
    """Return the blocks that may hold the indexed ones of `tags`, newest first; None: any block may."""
    chosen: set[int] | None = None
    for key, value in tags.items():
        raw = value.encode("utf-8", "surrogatepass")
        if key in indexed_keys and len(raw) <= MAX_INDEXED_VALUE:
            rows = connection.execute("SELECT block FROM tag WHERE hash = ?", (hash_tag(key, raw),))
            blocks = {row[0] for row in rows}
            chosen = blocks if chosen is None else chosen & blocks
    return None if chosen is None else sorted(chosen, reverse=True)


def _list_service_ids(connection: sqlite3.Connection, service: str | None) -> list[int]:
    if service is None:
        return [row[0] for row in connection.execute("SELECT DISTINCT service FROM operation")]
    known = _find_text(connection, service)
    return [] if known is None else [known]


def _find_text(connection: sqlite3.Connection, text: str) -> int | None:
    row = connection.execute("SELECT id FROM text WHERE text = ?", (text,)).fetchone()
    return None if row is None else int(row[0])
