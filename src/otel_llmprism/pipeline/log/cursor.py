# Where reading stands: segments of an earlier run first, then what the queue had no room for.
# One thread reads; what it finds out about a segment is handed back to the log.
from dataclasses import dataclass

from otel_llmprism.pipeline.log.acks import AckedSet
from otel_llmprism.pipeline.log.damage import DamageReport
from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.pipeline.log.reader import LogRecord, SegmentReader
from otel_llmprism.pipeline.log.segment import Segment


@dataclass(frozen=True, slots=True)
class Passed:
    """What reading a segment to its end found: records handed out and records that are damaged."""

    segment: Segment
    handed: int
    damaged: int


class LogCursor:
    """Reads one segment at a time; `next_id` is the number from which the next is looked for."""

    def __init__(self, disk: Disk, report: DamageReport) -> None:
        self.next_id = 0
        self._entrance: tuple[Segment, int, int] | None = None
        self._disk = disk
        self._report = report
        self._reader: SegmentReader | None = None
        self._handed = 0

    @property
    def segment(self) -> Segment | None:
        return self._reader.segment if self._reader else None

    def enter(self, segment: Segment) -> None:
        """Read `segment`: from its start, or from where plan_entrance said; raises OSError."""
        self.close()
        self.next_id = segment.header.segment_id + 1
        entrance, self._entrance = self._entrance, None
        acked = segment.acks.load() if segment.is_of_earlier_run else AckedSet()
        self._reader = SegmentReader(segment, self._disk, acked)
        if entrance is not None and entrance[0] is segment:
            self._reader.seek(entrance[1], entrance[2])

    def plan_entrance(self, segment: Segment, start: int, sequence: int) -> None:
        """Go on with `segment` from the record `sequence`, which starts at `start`."""
        self.close()
        self.next_id = segment.header.segment_id
        self._entrance = (segment, start, sequence)

    def read_next(self) -> LogRecord | None:
        """Give the next record; None at the end of what is written; raises OSError."""
        record = self._reader.read_next() if self._reader else None
        self._handed += record is not None
        return record

    def leave(self) -> Passed | None:
        """Close the segment that was read to its end and say what was found."""
        if self._reader is None:
            return None
        reader, handed = self._reader, self._handed
        self.close()
        self._report.note_damage(reader.segment.path.name, reader.damaged_records, is_torn=reader.is_torn)
        return Passed(reader.segment, handed, reader.damaged_records)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader, self._handed = None, 0
