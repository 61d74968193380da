# The segments that a log holds, oldest first, with their bytes on the disk. Adopts what an earlier
# run left, deletes what is spent. Not thread-safe: the log's lock guards it.
from pathlib import Path

from otel_llmprism.native.log_frame import ACK_SIZE, measure_segment_header
from otel_llmprism.pipeline.log.damage import DamageReport
from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.pipeline.log.folder import DAMAGED_SUFFIX, LogFolder, read_header
from otel_llmprism.pipeline.log.segment import Segment


class Segments:
    """`size_bytes` counts segments and acknowledgements, not files set aside as damaged."""

    def __init__(self, folder: LogFolder, disk: Disk, report: DamageReport) -> None:
        self.size_bytes = 0
        self._folder = folder
        self._disk = disk
        self._report = report
        self._segments: dict[int, Segment] = {}
        self._next_id = 1

    def adopt(self) -> None:
        """Take in what the folder holds; raises LogStartError for a newer format."""
        self._next_id = self._folder.find_next_id()
        for path in self._folder.list_segments():
            header, size = read_header(path), path.stat().st_size
            if header is None:
                self._put_away(path, size)
                continue
            segment = Segment(path, header, size, self._disk)
            segment.acks.measure()
            self._segments[int(path.stem)] = segment
            self.size_bytes += segment.measure()

    def mint_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def add(self, segment: Segment) -> None:
        self._segments[segment.header.segment_id] = segment
        self.size_bytes += segment.measure()

    def find_from(self, segment_id: int) -> Segment | None:
        """The oldest segment whose number is not below `segment_id`."""
        return next((self._segments[key] for key in sorted(self._segments) if key >= segment_id), None)

    def free(self, segment: Segment, sequence: int) -> None:
        """Write the acknowledgement of one record down; a segment that is gone is left alone."""
        if self._segments.get(segment.header.segment_id) is not segment:
            return
        try:
            segment.acks.add(sequence)
            self.size_bytes += ACK_SIZE if segment.is_of_earlier_run else 0
        except OSError as error:  # at worst the record is sent again by the next run
            self._report.note_error("acknowledge", error)
        segment.freed += 1

    def remove_if_spent(self, segment: Segment) -> None:
        """Delete a segment that has nothing left to send."""
        if not segment.is_spent() or self._segments.get(segment.header.segment_id) is not segment:
            return
        segment.close()
        size = segment.measure()
        try:
            self._disk.remove(segment.path)  # first: acknowledgements without a segment mean nothing
            self._disk.remove(segment.acks.path)
        except OSError as error:
            self._report.note_error("delete", error)
            return
        del self._segments[segment.header.segment_id]
        self.size_bytes -= size

    def __len__(self) -> int:
        return len(self._segments)

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
        self.size_bytes = 0

    def _put_away(self, path: Path, size: int) -> None:
        """Keep a file without a readable header for a person to look at; a cut one held no record."""
        try:
            if size < measure_segment_header(0):
                self._report.note_damage(path.name, 0, is_torn=True)
                self._disk.remove(path)
            else:
                self._report.note_damage(path.name, 1, is_torn=False)
                path.rename(path.with_suffix(DAMAGED_SUFFIX))
        except OSError as error:
            self._report.note_error("set aside", error)
