# One file of step records -> batches, its format told by its first bytes. Problems are reported with their
# place and never raised: bad input costs itself only.
from collections.abc import Callable, Iterator
from pathlib import Path

from otel_llmprism.receivers.step_records.batch_building import BatchBuilder
from otel_llmprism.receivers.step_records.csv_rows import read_csv_rows
from otel_llmprism.receivers.step_records.json_rows import read_json_rows
from otel_llmprism.receivers.step_records.parquet_rows import read_parquet_rows
from otel_llmprism.receivers.step_records.record_batch import RawRows, RecordBatch, StepRecordError
from otel_llmprism.receivers.step_records.text_lines import PlaceReport, open_bytes, read_start

Report = Callable[[Path, str, str], None]  # file, place in it such as "line 7", why
_PARQUET_MAGIC = b"PAR1"


def read_step_records(path: Path, report: Report) -> Iterator[RecordBatch]:
    """Yield the rows that hold, some thousand at a time, in the file's order; CSV, JSON lines or Parquet."""

    def report_place(place: str, why: str) -> None:
        report(path, place, why)

    builder = BatchBuilder(report_place)
    try:
        for raw in _read_rows(path, report_place):
            batch = builder.build_batch(raw)
            if len(batch):
                yield batch
    except (OSError, StepRecordError) as error:
        report(path, "", error.strerror or str(error) if isinstance(error, OSError) else str(error))


def _read_rows(path: Path, report: PlaceReport) -> Iterator[RawRows]:
    start = read_start(path, 4096)
    if start.startswith(_PARQUET_MAGIC):
        yield from read_parquet_rows(path)
        return
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise StepRecordError("nothing in it")
    with open_bytes(path) as file:
        yield from read_json_rows(file, report) if text.startswith(b"{") else read_csv_rows(file, report)
