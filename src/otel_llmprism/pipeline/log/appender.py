# The writing end of the log: picks the segment that a record goes to, within the bound, and makes new
# ones. Not thread-safe: the log's lock guards it.
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from otel_llmprism.native.log_frame import (
    ACK_SIZE,
    KIND_REQUEST,
    SegmentHeader,
    measure_record_header,
    measure_segment_header,
)
from otel_llmprism.pipeline.ingress_config import LogConfig
from otel_llmprism.pipeline.log.disk import Disk, sync_folder
from otel_llmprism.pipeline.log.errors import LogFullError
from otel_llmprism.pipeline.log.folder import LogFolder
from otel_llmprism.pipeline.log.segment import Segment, SegmentWriter, create_segment
from otel_llmprism.pipeline.log.segments import Segments


@dataclass(frozen=True, slots=True)
class Position:
    """Where a record lies in its segment."""

    segment: Segment
    sequence: int
    start: int
    end: int

    def wait_durable(self) -> None:
        """Return once the record is on the disk (at once when the log is not synced); raises OSError."""
        if self.segment.sync is not None:
            self.segment.sync.wait_until(self.end)


@dataclass(frozen=True, slots=True)
class WriteSettings:
    version: int
    is_synced: bool
    realtime_ns: Callable[[], int]


class Appender:
    """Keeps one segment open for writing; a spent one makes room for its successor."""

    def __init__(
        self, config: LogConfig, settings: WriteSettings, folder: LogFolder, segments: Segments, disk: Disk
    ) -> None:
        self._config = config
        self._settings = settings
        self._folder = folder
        self._segments = segments
        self._disk = disk
        self._writer: SegmentWriter | None = None

    @property
    def segment(self) -> Segment | None:
        """The segment that grows; every other one has its final length."""
        return self._writer.segment if self._writer else None

    def append(self, signal: int, payload: bytes, payload_crc: int) -> Position:
        """Write one request; raises LogFullError or OSError, with nothing written."""
        writer = self._find_writer(len(payload))
        segment = writer.segment
        start = segment.size
        sequence = writer.append(signal, KIND_REQUEST, payload, payload_crc, self._settings.realtime_ns())
        self._segments.size_bytes += segment.size - start + ACK_SIZE
        return Position(segment, sequence, start, segment.size)

    def open_segment(self) -> SegmentWriter:
        """Make the next segment; raises OSError and leaves nothing behind."""
        segment_id = self._segments.mint_id()
        salt = secrets.randbits(32) if self._settings.version else 0
        header = SegmentHeader(self._settings.version, segment_id, self._settings.realtime_ns(), salt)
        path = self._folder.locate_segment(segment_id)
        writer = create_segment(path, header, self._disk, is_synced=self._settings.is_synced)
        self._segments.add(writer.segment)
        if self._settings.is_synced:
            try:
                sync_folder(self._config.directory)
            except OSError:
                writer.seal()
                self._segments.remove_if_spent(writer.segment)
                raise
        self._writer = writer
        return writer

    def seal(self) -> None:
        """Write no more to the open segment; it is deleted when it is spent."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            before = writer.segment.size
            writer.seal()
            self._segments.size_bytes += writer.segment.size - before
            self._segments.remove_if_spent(writer.segment)

    def _find_writer(self, payload_size: int) -> SegmentWriter:
        # twice the header: the seal must find room too
        frame = payload_size + 2 * measure_record_header(self._settings.version) + ACK_SIZE
        if self._writer is not None and not self._has_room(self._writer, payload_size, frame):
            self.seal()
        if self._writer is not None and not self._is_beyond_bound(frame):
            return self._writer
        if self._writer is not None or self._is_beyond_bound(
            frame + measure_segment_header(self._settings.version)
        ):
            raise LogFullError(f"the log holds its {self._config.max_bytes} bytes")
        return self.open_segment()

    def _has_room(self, writer: SegmentWriter, payload_size: int, frame: int) -> bool:
        if self._is_beyond_bound(frame) and writer.segment.is_spent():
            return False
        return writer.has_room(payload_size, self._config.effective_segment_bytes)

    def _is_beyond_bound(self, more_bytes: int) -> bool:
        return self._segments.size_bytes + more_bytes > self._config.max_bytes
