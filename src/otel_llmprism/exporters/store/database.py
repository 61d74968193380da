# The store's file on disk: created private, locked to one process, opened for one writer and many
# readers, and moved aside when it is damaged. Knows no OTLP.
import fcntl
import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from otel_llmprism.exporters.store.schema import NotAStoreError, prepare_schema

FILE_NAME = "spans.db"
LOCK_NAME = "spans.lock"
DAMAGED_SUFFIX = ".damaged"
_SIDE_FILES = ("-wal", "-shm", "-journal")
_DAMAGE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_TRANSIENT_CODES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PROTOCOL,
}
_CHECK_TIME_S = 2.0  # a check that takes longer is given up: damage is then met when it is read
_CACHE_KIB = 64 << 10  # the writer's page cache; above it random index pages cost file reads
_READER_CACHE_KIB = 8 << 10
_WAL_PAGES = 8000  # 32 MB of log between checkpoints: fewer writes of the same index pages


class StoreInUseError(RuntimeError):
    """Another process writes to the same folder."""


class StoreUnusableError(RuntimeError):
    """The folder cannot hold a store now: no room, no permission, something in the way."""


class StoreLock:
    """Holds the folder for this process; given up by the kernel when the process ends."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._descriptor, 32, 0).decode("ascii", "replace") or "unknown"
            os.close(self._descriptor)
            raise StoreInUseError(
                f"{folder} is in use by process {owner}; stop it or choose another --data"
            ) from None
        with suppress(OSError):  # a full disk: the lock holds all the same, only its owner is not told
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d" % os.getpid(), 0)

    def close(self) -> None:
        os.close(self._descriptor)


def prepare_folder(folder: Path) -> None:
    """Create `folder` for its owner only; an existing one is used as it is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_writer(path: Path, durability: str) -> sqlite3.Connection:
    """Open (or create, 0600) the store for its one writer, tables ready."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'host' else 'NORMAL'}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {64 << 20}")
        connection.execute("PRAGMA trusted_schema = OFF")
        prepare_schema(connection)
        _check_pages(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that sees committed spans and cannot change them."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def is_damage(error: sqlite3.Error | NotAStoreError) -> bool:
    """Tell whether `error` says that the file itself is broken."""
    if isinstance(error, NotAStoreError):
        return True
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGE_CODES


def is_out_of_room(error: sqlite3.Error) -> bool:
    """Tell whether the disk is full (or refuses to grow the file)."""
    code = getattr(error, "sqlite_errorcode", 0)
    return (code & 0xFF) == sqlite3.SQLITE_FULL or code in {
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_TRUNCATE,
    }


def is_transient(error: sqlite3.Error) -> bool:
    """Tell whether the same write may well succeed later (the file is locked, the disk failed)."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _TRANSIENT_CODES


def move_aside(path: Path) -> Path:
    """Rename a damaged file (an older damaged one is replaced, so room stays bounded); say where to."""
    aside = path.with_name(path.name + DAMAGED_SUFFIX)
    for suffix in _SIDE_FILES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()
    path.replace(aside)
    return aside


def _check_pages(connection: sqlite3.Connection) -> None:
    give_up_at = time.monotonic() + _CHECK_TIME_S
    connection.set_progress_handler(lambda: int(time.monotonic() > give_up_at), 10_000)
    try:
        with closing(connection.execute("PRAGMA quick_check(1)")) as cursor:
            verdict = cursor.fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return
    finally:
        connection.set_progress_handler(None, 0)
    if verdict is None or verdict[0] != "ok":
        raise NotAStoreError(f"the store is damaged: {verdict[0] if verdict else 'no verdict'}")
