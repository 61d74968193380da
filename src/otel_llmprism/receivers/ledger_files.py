# Ledger segments on disk -> their records, one after the other. What is damaged is reported with its file
# and place, and costs the rest of that segment only.
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from otel_llmprism.native.ledger_frames import (
    FRAME_BYTES,
    HEADER_BYTES,
    Frame,
    SegmentError,
    SegmentOwner,
    check_body,
    measure_header,
    parse_frame,
    parse_header,
)
from otel_llmprism.receivers.ledger import LedgerBody, LedgerSource

SUFFIX = ".ledger"
Report = Callable[[Path, int, str], None]  # file, position in it, why


@dataclass(frozen=True, slots=True)
class Segment:
    path: Path
    owner: SegmentOwner

    @property
    def source(self) -> LedgerSource:
        return LedgerSource(self.owner.engine_id, self.owner.run, self.owner.node)


def list_segments(place: Path, report: Report) -> list[Segment]:
    """Return the segments of a folder, or the one that `place` is, oldest first within a run."""
    paths = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
    segments = []
    for path in paths:
        try:
            with path.open("rb") as file:
                segments.append(Segment(path, _read_owner(file)))
        except (OSError, ValueError) as error:
            report(path, 0, str(error))
    return segments


def read_segment(
    segment: Segment, report: Report, is_wanted: Callable[[Frame], bool] = lambda _frame: True
) -> Iterator[LedgerBody]:
    """Yield the records whose frame `is_wanted`; bodies of others are skipped unread."""
    try:
        with segment.path.open("rb") as file:
            _read_owner(file)
            yield from _read_frames(file, segment, report, is_wanted)
    except (OSError, ValueError) as error:
        report(segment.path, 0, str(error))


def _read_owner(file: BinaryIO) -> SegmentOwner:
    start = file.read(HEADER_BYTES)
    return parse_header(start + file.read(measure_header(start) - HEADER_BYTES))


def _read_frames(
    file: BinaryIO, segment: Segment, report: Report, is_wanted: Callable[[Frame], bool]
) -> Iterator[LedgerBody]:
    while head := file.read(FRAME_BYTES):
        at = file.tell() - len(head)
        try:
            frame = parse_frame(head)
        except SegmentError as error:
            report(segment.path, at, str(error))
            return
        if not is_wanted(frame):
            file.seek(frame.body_bytes, 1)
            continue
        body = file.read(frame.body_bytes)
        if len(body) < frame.body_bytes or not check_body(head, body):
            report(segment.path, at, "the record is torn or damaged")
            return
        yield LedgerBody(segment.source, frame.event_name, frame.seq, body)
