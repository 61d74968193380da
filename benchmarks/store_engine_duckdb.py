# DuckDB with the same layout: compressed blocks beside span columns, bulk inserts from numpy. Ids are
# two 64-bit numbers, since DuckDB compares and compresses these best. Measured only; no dependency.
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from store_engine_sqlite import MIN_DURATION_NS

from otel_llmprism.exporters.store.block_codec import decode_block, encode_frames, encode_payload
from otel_llmprism.exporters.store.decode import decode_span
from otel_llmprism.exporters.store.searchable import hash_tag
from otel_llmprism.exporters.store.span_rows import SpanRows

_TABLES = """
CREATE TABLE IF NOT EXISTS block (id BIGINT, spans INTEGER, frames BLOB, data BLOB);
CREATE TABLE IF NOT EXISTS span (
    trace_high UBIGINT, trace_low UBIGINT, span_id UBIGINT, parent_id UBIGINT, block BIGINT,
    service VARCHAR, name VARCHAR, kind TINYINT, status TINYINT, start_ns BIGINT, duration_ns BIGINT,
    place INTEGER, size INTEGER, resource INTEGER, scope INTEGER,
    PRIMARY KEY (trace_high, trace_low, span_id));
CREATE TABLE IF NOT EXISTS tag (hash BIGINT, block BIGINT);
"""
_NAMES = (
    "trace_high, trace_low, span_id, parent_id, block, service, name, kind, status, start_ns, duration_ns, "
    "place, size, resource, scope"
)
_TOP = "GROUP BY trace_high, trace_low ORDER BY max(start_ns) DESC LIMIT 20"


class DuckdbEngine:
    def __init__(self, folder: Path) -> None:
        self._connection = duckdb.connect(str(folder / "spans.duckdb"), config={"threads": 2})
        self._connection.execute(_TABLES)
        row = self._connection.execute("SELECT coalesce(max(id), 0) FROM block").fetchone()
        self._next_block = 1 + (row[0] if row else 0)

    def insert(self, payload: bytes, rows: SpanRows) -> int:
        block = self._next_block
        ids = np.frombuffer(b"".join(rows.trace_ids), ">u8").astype("u8").reshape(-1, 2)
        spans = {
            "trace_high": ids[:, 0].copy(),
            "trace_low": ids[:, 1].copy(),
            "span_id": np.frombuffer(b"".join(rows.span_ids), ">u8").astype("u8"),
            "parent_id": np.array([int.from_bytes(one, "big") for one in rows.parent_ids], "u8"),
            "block": np.full(len(rows), block),
            "service": np.array(rows.services, object),
            "name": np.array(rows.names, object),
            "kind": np.array(rows.kinds, "i1"),
            "status": np.array(rows.statuses, "i1"),
            "start_ns": np.array(rows.starts_ns),
            "duration_ns": np.array(rows.durations_ns),
            "place": np.array(rows.offsets, "i4"),
            "size": np.array(rows.lengths, "i4"),
            "resource": np.array(rows.resources, "i4"),
            "scope": np.array(rows.scopes, "i4"),
        }
        tags = {"hash": np.array(sorted(rows.tag_hashes)), "block": np.full(len(rows.tag_hashes), block)}
        connection = self._connection
        connection.execute("BEGIN")
        connection.register("new_spans", spans)
        done = connection.execute(f"INSERT OR IGNORE INTO span SELECT {_NAMES} FROM new_spans").fetchone()  # noqa: S608 - fixed texts
        inserted = int(done[0]) if done else 0
        if inserted:
            connection.register("new_tags", tags)
            connection.execute("INSERT INTO tag SELECT hash, block FROM new_tags")
            frames = encode_frames(rows.resource_pieces, rows.scope_pieces)
            values = [block, len(rows), frames, encode_payload(payload)]
            connection.execute("INSERT INTO block VALUES (?, ?, ?, ?)", values)
            self._next_block += 1
        connection.execute("COMMIT")
        return inserted

    def ask(self, question: str, known: dict[str, Any]) -> int:
        if question == "trace by id":
            high, low = (int.from_bytes(known["trace_id"][at : at + 8], "big") for at in (0, 8))
            return self._read_traces([(high, low)])
        if question == "newest of a service":
            found = self._find("WHERE service = ?", [known["service"]])
        elif question == "operation and duration":
            values = [known["service"], known["operation"], MIN_DURATION_NS]
            found = self._find("WHERE service = ? AND name = ? AND duration_ns >= ?", values)
        elif question == "indexed attribute":
            found = self._find_tagged("llmprism.request.id", known["request_id"], is_indexed=True)
        else:
            found = self._find_tagged("own.text", known["other"], is_indexed=False)
        return self._read_traces(found)

    def delete_oldest(self, share: float) -> None:
        row = self._connection.execute("SELECT max(id) FROM block").fetchone()
        last = int((row[0] if row else 0) * share)
        for first in range(0, last, 8):
            bounds = [first, min(first + 8, last + 1)]
            for table, column in (("span", "block"), ("tag", "block"), ("block", "id")):
                self._connection.execute(f"DELETE FROM {table} WHERE {column} >= ? AND {column} < ?", bounds)  # noqa: S608 - fixed texts
        self._connection.execute("CHECKPOINT")

    def count(self) -> int:
        row = self._connection.execute("SELECT count(*) FROM span").fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        self._connection.close()

    def _find(self, where: str, values: list[Any]) -> list[tuple[int, int]]:
        sql = f"SELECT trace_high, trace_low FROM span {where} {_TOP}"  # noqa: S608 - fixed texts
        return self._connection.execute(sql, values).fetchall()

    def _find_tagged(self, key: str, value: str, *, is_indexed: bool) -> list[tuple[int, int]]:
        sql = "SELECT id, data, frames FROM block"
        values: list[Any] = []
        if is_indexed:
            sql += " WHERE id IN (SELECT block FROM tag WHERE hash = ?)"
            values = [hash_tag(key, value.encode())]
        found: dict[tuple[int, int], None] = {}
        cursor = self._connection.cursor().execute(sql + " ORDER BY id DESC", values)
        while (row := cursor.fetchone()) is not None:
            payload = decode_block(row[1], row[2]).payload
            if value.encode() not in payload:
                continue
            spans = self._connection.execute(
                "SELECT trace_high, trace_low, place, size FROM span WHERE block = ?", [row[0]]
            ).fetchall()
            for high, low, place, size in spans:
                raw = payload[place : place + size]
                if value.encode() in raw and decode_span(raw).attributes.get(key) == value:
                    found[high, low] = None
            if len(found) >= 20:
                break
        return list(found)[:20]

    def _read_traces(self, ids: list[tuple[int, int]]) -> int:
        count = 0
        blocks: dict[int, bytes] = {}
        for high, low in ids:
            rows = self._connection.execute(
                "SELECT block, place, size FROM span WHERE trace_high = ? AND trace_low = ?", [high, low]
            ).fetchall()
            for block, place, size in rows:
                if block not in blocks:
                    data = self._connection.execute(
                        "SELECT data, frames FROM block WHERE id = ?", [block]
                    ).fetchone()
                    assert data is not None
                    blocks[block] = decode_block(*data).payload
                decode_span(blocks[block][place : place + size])
                count += 1
        return count
