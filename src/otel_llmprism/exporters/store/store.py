# The store as its one writer uses it: opens the file, writes blocks and events, forgets the oldest, and
# mends what can be mended (a damaged file is moved aside, a full disk makes room). Used by one thread.
import logging
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from otel_llmprism.exporters.store import database
from otel_llmprism.exporters.store.block_writer import BlockWriter, Written
from otel_llmprism.exporters.store.config import StoreConfig
from otel_llmprism.exporters.store.decode import decode_link_targets
from otel_llmprism.exporters.store.event_rows import EventRow
from otel_llmprism.exporters.store.retention import Forgotten, forget_oldest, measure_used
from otel_llmprism.exporters.store.schema import NotAStoreError
from otel_llmprism.exporters.store.span_rows import SpanRows

_logger = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")

_INSERT_EVENT = (
    "INSERT OR IGNORE INTO event (digest, stored_ns, time_ns, name, service, trace_id, span_id, data) "
    "VALUES (?,?,?,?,?,?,?,?)"
)


class StoreFullError(RuntimeError):
    """The disk has no room, and forgetting the oldest spans did not make any."""


class SpanStore:
    """Raises StoreInUseError, StoreVersionError or StoreUnusableError when the folder cannot be used."""

    def __init__(self, config: StoreConfig, read_time_ns: Callable[[], int]) -> None:
        self.path = config.folder / database.FILE_NAME
        self._config = config
        self._read_time_ns = read_time_ns
        try:
            database.prepare_folder(config.folder)
            self._lock = database.StoreLock(config.folder)
            self._connection, self._writer = self._open_locked()
        except (OSError, sqlite3.Error) as error:
            raise database.StoreUnusableError(
                f"cannot keep spans in {config.folder}: {error}; check its room and its permissions"
            ) from error

    def write_spans(self, payload: bytes, rows: SpanRows) -> Written:
        """Store one block; raises StoreFullError when there is no room, else sqlite3.Error."""
        return self._write_with_care(
            lambda: self._writer.write_block(payload, rows, decode_link_targets, self._read_time_ns())
        )

    def write_events(self, rows: list[EventRow]) -> int:
        """Store log events; return how many were new."""
        stored_ns = self._read_time_ns()
        values = [
            (
                *(row.digest, stored_ns, row.time_ns, row.name, row.service),
                *(row.trace_id, row.span_id, row.data),
            )
            for row in rows
        ]

        def insert() -> int:
            before = self._connection.total_changes
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(_INSERT_EVENT, values)
            return self._connection.total_changes - before

        return self._write_with_care(insert)

    def forget_due(self) -> Forgotten:
        """Make one bounded pass of retention by age and size."""
        forgotten = forget_oldest(
            self._connection,
            max_bytes=self._config.max_bytes,
            oldest_ns=self._read_time_ns() - int(self._config.max_age_s * 1e9),
        )
        if forgotten.blocks and forgotten.is_done:
            self._writer.forget_texts()
        return forgotten

    def measure_used(self) -> int:
        """Return the bytes that spans, indexes and events take."""
        return measure_used(self._connection)

    def close(self) -> None:
        self._connection.close()
        self._lock.close()

    def _open_locked(self) -> tuple[sqlite3.Connection, BlockWriter]:
        try:
            return self._open()
        except BaseException:
            self._lock.close()
            raise

    def _open(self) -> tuple[sqlite3.Connection, BlockWriter]:
        try:
            connection = database.open_writer(self.path, self._config.durability)
        except (sqlite3.DatabaseError, NotAStoreError) as error:
            if not database.is_damage(error):
                raise
            self._move_aside(error)
            connection = database.open_writer(self.path, self._config.durability)
        return connection, BlockWriter(connection)

    def _write_with_care(self, write: Callable[[], ResultT]) -> ResultT:
        try:
            return write()
        except sqlite3.DatabaseError as error:
            if database.is_damage(error):
                self._connection.close()
                self._move_aside(error)
                self._connection, self._writer = self._open()
            elif database.is_out_of_room(error):
                self._make_room(error)
            else:
                raise
        try:
            return write()
        except sqlite3.OperationalError as error:
            if database.is_out_of_room(error):
                raise StoreFullError(f"no room for spans in {self.path.parent}: {error}") from error
            raise

    def _make_room(self, error: sqlite3.Error) -> None:
        """Fold the log into the file and forget a few of the oldest blocks, whose pages are used again."""
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            forget_oldest(self._connection, max_bytes=0, oldest_ns=0)
        except sqlite3.OperationalError:
            raise StoreFullError(f"no room for spans in {self.path.parent}: {error}") from error

    def _move_aside(self, error: Exception) -> None:
        aside = database.move_aside(self.path)
        _logger.error("the store was damaged (%s); it is now %s and a new one was begun", error, aside)
