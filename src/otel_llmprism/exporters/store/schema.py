# The tables of the store and their version. A file says which version wrote it and the oldest that may
# still use it, so that one step up and one step down both work (docs/adr/0070).
import sqlite3

VERSION = 1
OLDEST_ACCEPTED = 0  # a file of this version is brought up in place
OLDEST_READER = 0  # what we write, a program of this version can still use: tables are only added

TAG_PART_BITS = 18  # as in the index below: a part holds 2^18 entries, some 5 MB

_VERSION_0 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE text (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE block (
    id INTEGER PRIMARY KEY, stored_ns INTEGER NOT NULL,
    first_span INTEGER NOT NULL, last_span INTEGER NOT NULL,
    first_link INTEGER NOT NULL, last_link INTEGER NOT NULL,
    first_tag INTEGER NOT NULL, last_tag INTEGER NOT NULL,
    spans INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, frames BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE span (
    id INTEGER PRIMARY KEY, block INTEGER NOT NULL,
    trace_id BLOB NOT NULL, span_id BLOB NOT NULL, parent_id BLOB NOT NULL,
    service INTEGER NOT NULL, name INTEGER NOT NULL, kind INTEGER NOT NULL, status INTEGER NOT NULL,
    start_ns INTEGER NOT NULL, duration_ns INTEGER NOT NULL,
    offset INTEGER NOT NULL, length INTEGER NOT NULL, resource INTEGER NOT NULL, scope INTEGER NOT NULL);
CREATE UNIQUE INDEX span_by_id ON span (trace_id, span_id);
CREATE INDEX span_by_service ON span (service, start_ns);
CREATE INDEX span_by_operation ON span (service, name, start_ns);
CREATE TABLE operation (
    service INTEGER NOT NULL, name INTEGER NOT NULL, kind INTEGER NOT NULL, last_ns INTEGER NOT NULL,
    PRIMARY KEY (service, name, kind)) WITHOUT ROWID;
CREATE TABLE link (
    id INTEGER PRIMARY KEY, span INTEGER NOT NULL,
    target_trace BLOB NOT NULL, target_span BLOB NOT NULL);
CREATE INDEX link_by_target ON link (target_trace, target_span);
CREATE TABLE tag (id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, block INTEGER NOT NULL);
-- Hashes fall anywhere in an index. Kept apart by age, only the newest part of it is written to, and that
-- part stays in the cache however large the store becomes; a question asks every part (TAG_PART_BITS).
CREATE INDEX tag_by_hash ON tag (id >> 18, hash, block);
"""

_ADDED_IN_1 = """
CREATE TABLE event (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, stored_ns INTEGER NOT NULL,
    time_ns INTEGER NOT NULL, name TEXT NOT NULL, service TEXT NOT NULL,
    trace_id BLOB NOT NULL, span_id BLOB NOT NULL, data BLOB NOT NULL);
CREATE INDEX event_by_time ON event (time_ns);
"""


class StoreVersionError(RuntimeError):
    """The file belongs to a program too new or too old for us; it is left as it is."""


class NotAStoreError(RuntimeError):
    """The file is a sound database, but not one of ours."""


def prepare_schema(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty file, bring the version before up, refuse what we cannot use."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        _create_tables(connection)
        return
    if not {"meta", "span", "block"} <= tables:
        raise NotAStoreError("the file is a database, but holds no spans store")
    version = _read_meta(connection, "version")
    if version == VERSION:
        return
    if version > VERSION:
        _refuse_unless_usable(connection, version)
    elif version >= OLDEST_ACCEPTED:
        _bring_up(connection)
    else:
        raise StoreVersionError(
            f"the store has version {version}, too old for this program; choose another --data"
        )


def _create_tables(connection: sqlite3.Connection) -> None:
    rows = f"INSERT INTO meta VALUES ('version', {VERSION}), ('oldest_reader', {OLDEST_READER});"  # noqa: S608 - both are our own integers
    connection.executescript("BEGIN IMMEDIATE;" + _VERSION_0 + _ADDED_IN_1 + rows + "COMMIT;")


def _bring_up(connection: sqlite3.Connection) -> None:
    set_version = f"UPDATE meta SET value = {VERSION} WHERE key = 'version';"  # noqa: S608 - our own integer
    connection.executescript("BEGIN IMMEDIATE;" + _ADDED_IN_1 + set_version + "COMMIT;")


def _refuse_unless_usable(connection: sqlite3.Connection, version: int) -> None:
    if _read_meta(connection, "oldest_reader") > VERSION:
        raise StoreVersionError(
            f"the store was written by a newer program (version {version}); update, or choose another --data"
        )


def _read_meta(connection: sqlite3.Connection, key: str) -> int:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    if row is None or not isinstance(row[0], int):
        raise NotAStoreError(f"the store does not say its {key}")
    return row[0]
