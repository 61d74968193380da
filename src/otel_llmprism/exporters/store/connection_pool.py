# Connections for readers, shared by request threads: taken for one question, given back, and each
# question stopped when its time is up. Notices that the file was replaced by a new one.
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_llmprism.exporters.store.database import is_damage, open_reader

QUESTION_S = 10.0  # the longest that one question may take
MAX_IDLE = 4
_STEPS_BETWEEN_CHECKS = 5_000  # of SQLite's machine: about 0.2 ms

_FileId = tuple[int, int]


class QuestionTooLongError(RuntimeError):
    """The time for one question was used up."""


class StoreUnreadableError(RuntimeError):
    """The file is missing, or damaged where it was read."""


class ConnectionPool:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._idle: list[tuple[_FileId, sqlite3.Connection]] = []
        self._is_closed = False

    @contextmanager
    def connect(self, limit_s: float) -> Iterator[sqlite3.Connection]:
        """Lend a connection whose statements fail with QuestionTooLongError after `limit_s`."""
        give_up_at = time.monotonic() + limit_s
        try:
            file_id, connection = self._take()
        except (OSError, sqlite3.Error) as error:
            raise StoreUnreadableError(f"the store cannot be opened: {error}") from error
        connection.set_progress_handler(lambda: int(time.monotonic() > give_up_at), _STEPS_BETWEEN_CHECKS)
        is_sound = False
        try:
            connection.execute("BEGIN")  # one question sees one state of the store
            yield connection
            connection.execute("COMMIT")
            is_sound = True
        except sqlite3.DatabaseError as error:
            raise _explain(error) from error
        finally:
            self._give_back(file_id, connection, is_sound=is_sound)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for _, connection in self._idle:
                connection.close()
            self._idle.clear()

    def _take(self) -> tuple[_FileId, sqlite3.Connection]:
        status = self._path.stat()
        file_id = (status.st_dev, status.st_ino)
        with self._lock:
            while self._idle:
                known_id, connection = self._idle.pop()
                if known_id == file_id:
                    return known_id, connection
                connection.close()
        return file_id, open_reader(self._path)

    def _give_back(self, file_id: _FileId, connection: sqlite3.Connection, *, is_sound: bool) -> None:
        connection.set_progress_handler(None, 0)
        with self._lock:
            if is_sound and not self._is_closed and len(self._idle) < MAX_IDLE:
                self._idle.append((file_id, connection))
                return
        connection.close()


def _explain(error: sqlite3.DatabaseError) -> Exception:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
        return QuestionTooLongError("the question took too long; ask for less time or fewer traces")
    if is_damage(error):
        return StoreUnreadableError(
            f"the store is damaged where it was read ({error}); a restart moves it aside and begins a new one"
        )
    return StoreUnreadableError(f"the store cannot be read now: {error}")
