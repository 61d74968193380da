# Forgets the oldest blocks by age and by size. A pass does bounded work; freed pages go back to the
# file system a few at a time, so the file shrinks without a pause.
import sqlite3
from dataclasses import dataclass

MAX_BLOCKS_A_PASS = 8
MAX_PAGES_A_PASS = 2000  # 8 MB handed back at most
_FREE_SHARE = 0.05  # of the file's pages; so much larger than its bound it may stay
_MAX_EVENTS_A_PASS = 1000


@dataclass(frozen=True, slots=True)
class Forgotten:
    blocks: int
    spans: int
    events: int
    is_done: bool  # False: a further pass would forget more


def forget_oldest(connection: sqlite3.Connection, *, max_bytes: int, oldest_ns: int) -> Forgotten:
    """Delete up to MAX_BLOCKS_A_PASS blocks stored before `oldest_ns` or in excess of `max_bytes`."""
    blocks = spans = 0
    while blocks < MAX_BLOCKS_A_PASS:
        row = connection.execute(
            "SELECT id, stored_ns, first_span, last_span, first_link, last_link, first_tag, last_tag "
            "FROM block ORDER BY id LIMIT 1"
        ).fetchone()
        if row is None or (row[1] >= oldest_ns and measure_used(connection) <= max_bytes):
            break
        spans += _delete_block(connection, row)
        blocks += 1
    events = _delete_events(connection, oldest_ns)
    _hand_back_pages(connection)
    is_done = blocks < MAX_BLOCKS_A_PASS and events < _MAX_EVENTS_A_PASS
    if blocks and is_done:
        _forget_operations(connection)
    return Forgotten(blocks, spans, events, is_done)


def measure_used(connection: sqlite3.Connection) -> int:
    """Return the bytes of the file that hold data (free pages, which are reused first, left out)."""
    pages = _read_pragma(connection, "page_count") - _read_pragma(connection, "freelist_count")
    return pages * _read_pragma(connection, "page_size")


def _delete_block(connection: sqlite3.Connection, row: tuple[int, ...]) -> int:
    block, _, first_span, last_span, first_link, last_link, first_tag, last_tag = row
    connection.execute("BEGIN IMMEDIATE")
    try:
        deleted = connection.execute("DELETE FROM span WHERE id BETWEEN ? AND ?", (first_span, last_span))
        connection.execute("DELETE FROM link WHERE id BETWEEN ? AND ?", (first_link, last_link))
        connection.execute("DELETE FROM tag WHERE id BETWEEN ? AND ?", (first_tag, last_tag))
        connection.execute("DELETE FROM block WHERE id = ?", (block,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return deleted.rowcount


def _delete_events(connection: sqlite3.Connection, oldest_ns: int) -> int:
    return connection.execute(
        "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE stored_ns < ? ORDER BY id LIMIT ?)",
        (oldest_ns, _MAX_EVENTS_A_PASS),
    ).rowcount


def _forget_operations(connection: sqlite3.Connection) -> None:
    # A service or operation without spans would be offered in the page's lists for ever.
    connection.execute(
        "DELETE FROM operation WHERE NOT EXISTS (SELECT 1 FROM span "
        "WHERE span.service = operation.service AND span.name = operation.name)"
    )


def _hand_back_pages(connection: sqlite3.Connection) -> None:
    # Pages that the next blocks take again are not worth moving (it costs as much as deleting); more is.
    pages, free = _read_pragma(connection, "page_count"), _read_pragma(connection, "freelist_count")
    if free <= pages * _FREE_SHARE:
        return
    # As a script: execute() stops after the statement's first step, which frees a single page.
    connection.executescript(f"PRAGMA incremental_vacuum({MAX_PAGES_A_PASS});")


def _read_pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
