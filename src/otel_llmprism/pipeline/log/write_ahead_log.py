# The write-ahead log: requests go in before they are acknowledged and are freed when settled.
# Bytes and the numbers of signals in, positions and records out; knows no queue and no signal.
import threading
import time
import zlib
from collections.abc import Callable

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress_config import LogConfig
from otel_llmprism.pipeline.log.appender import Appender, Position, WriteSettings
from otel_llmprism.pipeline.log.cursor import LogCursor, Passed
from otel_llmprism.pipeline.log.damage import DamageReport
from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.pipeline.log.errors import LogStartError
from otel_llmprism.pipeline.log.folder import LogFolder
from otel_llmprism.pipeline.log.reader import LogRecord
from otel_llmprism.pipeline.log.segment import Segment
from otel_llmprism.pipeline.log.segments import Segments


class WriteAheadLog:
    """Thread-safe, except that one thread alone reads. Bounded in bytes; never evicts."""

    def __init__(
        self,
        config: LogConfig,
        counters: Counters,
        *,
        is_synced: bool = False,
        disk: Disk | None = None,
        realtime_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._config = config
        self._report = DamageReport(counters)
        disk = disk or Disk()
        self._folder = LogFolder(config.directory)
        self._lock = threading.Lock()
        self._read_lock = threading.Lock()  # taken first: a close waits for the read under way
        self._segments = Segments(self._folder, disk, self._report)
        self._cursor = LogCursor(disk, self._report)
        settings = WriteSettings(config.format_version, is_synced, realtime_ns)
        self._appender = Appender(config, settings, self._folder, self._segments, disk)

    def open(self) -> None:
        """Take the folder and what an earlier run left in it; raises LogStartError with the mend."""
        self._folder.lock()
        try:
            self._segments.adopt()
            self._cursor.next_id = 0
            self._prove_writable()
        except BaseException:
            self.close()
            raise

    def append(self, signal: int, payload: bytes) -> Position:
        """Write one request; raises LogFullError at the bound, OSError when the disk refuses."""
        payload_crc = zlib.crc32(payload)  # outside the lock: it lets other threads run
        try:
            with self._lock:
                position = self._appender.append(signal, payload, payload_crc)
        except OSError as error:
            self._report.note_error("append", error)
            raise
        self._report.note_success("append")
        return position

    def free(self, segment: Segment, sequence: int) -> None:
        """Say that a record is settled; its segment goes when all of it is. Never raises."""
        with self._lock:
            self._segments.free(segment, sequence)
            self._remove_if_spent(segment)

    def read_from(self, position: Position) -> None:
        """Let read_next go on at a record that was just written and was not handed out."""
        self._cursor.plan_entrance(position.segment, position.start, position.sequence)

    def read_next(self, *, is_last: bool = False) -> LogRecord | None:
        """Give the next record that was not handed out; None when all that is written was.

        `is_last`: the caller goes on without the log after None, so nothing stays open for it.
        """
        with self._read_lock:
            return self._read_record(is_last=is_last)

    def measure(self) -> int:
        """Bytes on the disk."""
        return self._segments.size_bytes

    def close(self) -> None:
        """Seal and let go of the folder; what is not freed is given again after the next open."""
        with self._read_lock, self._lock:
            self._cursor.close()
            self._appender.seal()
            self._segments.close()
        self._folder.unlock()

    def _prove_writable(self) -> None:
        try:
            self._appender.open_segment()
        except OSError as error:
            if self._segments:  # a full disk must not keep us from draining what fills it
                self._report.note_error("append", error)
                return
            raise LogStartError(
                error.errno,
                f"the log folder {self._config.directory} takes no segment ({error.strerror}): free space, "
                "make it writable, or set another log directory",
            ) from error

    def _read_record(self, *, is_last: bool) -> LogRecord | None:
        while self._enter_segment():
            # asked before the read: a segment that is not written to any more has its final length
            is_final = self._cursor.segment is not self._appender.segment
            try:
                record = self._cursor.read_next()
            except OSError as error:  # left as it is for the next run
                self._report.note_error("read", error)
                self._cursor.close()
                continue
            if record is not None:
                return record
            if not is_final and not is_last:
                return None
            self._account_for(self._cursor.leave())
        return None

    def _enter_segment(self) -> bool:
        """Have a segment to read from; False when there is none behind the last one."""
        while self._cursor.segment is None:
            with self._lock:
                segment = self._segments.find_from(self._cursor.next_id)
            if segment is None:
                return False
            try:
                self._cursor.enter(segment)
            except OSError as error:  # left as it is for the next run
                self._report.note_error("read", error)
        return True

    def _account_for(self, passed: Passed | None) -> None:
        if passed is None:
            return
        with self._lock:
            if passed.segment.is_of_earlier_run:
                passed.segment.total = passed.handed
            else:
                passed.segment.freed += passed.damaged
            self._remove_if_spent(passed.segment)

    def _remove_if_spent(self, segment: Segment) -> None:
        if segment is not self._appender.segment:  # more may come to that one
            self._segments.remove_if_spent(segment)
