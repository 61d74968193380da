# Writes blocks of spans into the tables. One transaction a block; a span that is already there (the
# same trace and span id) is counted and left out, so a replay changes nothing.
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from otel_llmprism.exporters.store.block_codec import encode_frames, encode_payload
from otel_llmprism.exporters.store.span_rows import SpanRows

_INSERT_SPAN = "INSERT OR IGNORE INTO span VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_INSERT_OPERATION = (
    "INSERT INTO operation VALUES (?,?,?,?) "
    "ON CONFLICT DO UPDATE SET last_ns = max(last_ns, excluded.last_ns)"
)
_MAX_KNOWN_TEXTS = 100_000

Target = tuple[bytes, bytes]  # trace id and span id that a link points at


@dataclass(frozen=True, slots=True)
class Written:
    spans: int
    duplicates: int


class BlockWriter:
    """Owns the id counters of one store file; used by the writer thread only."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._texts: dict[str, int] = {}
        self._next_block = self._next_span = self._next_link = self._next_tag = 1
        self._reload_counters()

    def write_block(
        self, payload: bytes, rows: SpanRows, read_links: Callable[[bytes], Iterable[Target]], stored_ns: int
    ) -> Written:
        """Store one block; all of it or, when this raises sqlite3.Error, nothing."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            written = self._insert_block(payload, rows, read_links, stored_ns)
            # A block of duplicates only would hold bytes that no span points at.
            self._connection.execute("COMMIT" if written.spans else "ROLLBACK")
        except BaseException:
            try:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            finally:
                self._reload_counters()
            raise
        if not written.spans:
            self._reload_counters()
        return written

    def forget_texts(self) -> None:
        """Delete the names that no operation uses any more."""
        self._texts.clear()
        self._connection.execute(
            "DELETE FROM text WHERE id NOT IN "
            "(SELECT service FROM operation UNION SELECT name FROM operation)"
        )

    def _insert_block(
        self, payload: bytes, rows: SpanRows, read_links: Callable[[bytes], Iterable[Target]], stored_ns: int
    ) -> Written:
        block, first_span = self._next_block, self._next_span
        fresh = self._insert_spans(block, rows)
        if not fresh:
            return Written(0, len(rows))
        links = [
            (first_span + index, *target)
            for index in fresh
            if rows.link_counts[index]
            for target in read_links(payload[rows.offsets[index] :][: rows.lengths[index]])
        ]
        first_link, first_tag = self._next_link, self._next_tag
        self._next_link = self._insert_numbered("link", first_link, links)
        tags = [(tag, block) for tag in sorted(rows.tag_hashes)]
        self._next_tag = self._insert_numbered("tag", first_tag, tags)
        self._connection.execute(
            "INSERT INTO block VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(block, stored_ns, first_span, self._next_span - 1, first_link, self._next_link - 1),
                *(first_tag, self._next_tag - 1, len(fresh), len(payload)),
                *(encode_frames(rows.resource_pieces, rows.scope_pieces), encode_payload(payload)),
            ),
        )
        self._next_block += 1
        return Written(len(fresh), len(rows) - len(fresh))

    def _insert_spans(self, block: int, rows: SpanRows) -> Sequence[int]:
        services = [self._intern(text) for text in rows.services]
        names = [self._intern(text) for text in rows.names]
        first, count = self._next_span, len(rows)
        columns = zip(
            *(range(first, first + count), (block,) * count, rows.trace_ids, rows.span_ids),
            *(rows.parent_ids, services, names, rows.kinds, rows.statuses, rows.starts_ns),
            *(rows.durations_ns, rows.offsets, rows.lengths, rows.resources, rows.scopes),
            strict=True,
        )
        before = self._connection.total_changes
        self._connection.executemany(_INSERT_SPAN, columns)
        inserted = self._connection.total_changes - before
        self._next_span = first + count
        operations: dict[tuple[int, int, int], int] = {}
        for key, start in zip(zip(services, names, rows.kinds, strict=True), rows.starts_ns, strict=True):
            operations[key] = max(start, operations.get(key, 0))
        self._connection.executemany(_INSERT_OPERATION, [(*key, last) for key, last in operations.items()])
        if inserted == count:
            return range(count)
        kept = self._connection.execute(
            "SELECT id FROM span WHERE id BETWEEN ? AND ?", (first, first + count)
        )
        return [row[0] - first for row in kept]

    def _insert_numbered(self, table: str, first: int, rows: Sequence[tuple[object, ...]]) -> int:
        if rows:
            marks = ",".join("?" * (len(rows[0]) + 1))
            numbered = ((first + index, *row) for index, row in enumerate(rows))
            self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", numbered)  # noqa: S608 - `table` is a constant of this file
        return first + len(rows)

    def _intern(self, text: str) -> int:
        known = self._texts.get(text)
        if known is not None:
            return known
        if len(self._texts) >= _MAX_KNOWN_TEXTS:
            self._texts.clear()
        self._connection.execute("INSERT OR IGNORE INTO text (text) VALUES (?)", (text,))
        row = self._connection.execute("SELECT id FROM text WHERE text = ?", (text,)).fetchone()
        self._texts[text] = row[0]
        return int(row[0])

    def _reload_counters(self) -> None:
        # After a rollback: what was interned in it is gone, and its ids are free again.
        self._texts.clear()
        row = self._connection.execute(
            "SELECT max(id), max(last_span), max(last_link), max(last_tag) FROM block"
        ).fetchone()
        self._next_block, self._next_span, self._next_link, self._next_tag = ((last or 0) + 1 for last in row)
