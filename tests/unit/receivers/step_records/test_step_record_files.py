# Files of step records in every form, good and damaged, read back as columns.
import builtins
import gzip
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from otel_llmprism.model.work import DECODE_TOKENS, GRAPH_MODE, PREFILL_TOKENS, REQUESTS
from otel_llmprism.native.ring_codes import StepKind
from otel_llmprism.receivers.step_records import RecordBatch, RejectedRows, read_step_records
from otel_llmprism.receivers.step_records.record_batch import ROWS_AT_ONCE
from otel_llmprism.receivers.step_records.text_lines import MAX_LINE_BYTES

START = 1_767_225_600_000_000_001  # no float holds it
HEADER = "start_ns,duration_ns,engine,kind,requests,prefill_tokens,decode_tokens,kv_tokens,instance"
ROW = f"{START},8000000,e,decode,2,0,2,64,i"
RECORD = {"start_ns": START, "duration_ns": 8_000_000, "engine": "e", "kind": "decode", "requests": 2}


def write_text(tmp_path: Path, *lines: str, name: str = "steps.csv") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read_all(path: Path) -> tuple[list[RecordBatch], RejectedRows]:
    rejected = RejectedRows()
    return list(read_step_records(path, rejected)), rejected


def read_one(path: Path) -> tuple[RecordBatch, RejectedRows]:
    batches, rejected = read_all(path)
    assert len(batches) == 1, rejected.describe()
    return batches[0], rejected


def check_row(batch: RecordBatch) -> None:
    assert batch.start_ns.tolist() == [START]
    assert batch.cycle_ns.tolist() == [8_000_000]
    assert [batch.engine_names[code] for code in batch.engine] == ["e"]
    assert batch.work.kind.tolist() == [StepKind.DECODE]
    assert batch.work.read_feature(REQUESTS).tolist() == [2]


def test_csv_keeps_every_nanosecond(tmp_path: Path) -> None:
    batch, rejected = read_one(write_text(tmp_path, HEADER, ROW))
    check_row(batch)
    assert batch.instance_names == ("i",)
    assert rejected.count == 0


def test_json_lines_are_told_by_their_content_not_by_their_name(tmp_path: Path) -> None:
    batch, _ = read_one(write_text(tmp_path, json.dumps(RECORD), name="steps.csv"))
    check_row(batch)


def test_parquet_is_read_with_its_integers_exact(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({name: [value] for name, value in RECORD.items()})
    pq.write_table(table.append_column("members", [[[1, 2]]]), tmp_path / "steps")
    batch, _ = read_one(tmp_path / "steps")
    check_row(batch)


def test_timestamps_of_parquet_are_nanoseconds(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    start = pa.array([START // 1000], pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"start_ns": start, "duration_ns": [1000]}), tmp_path / "steps.parquet")
    batch, _ = read_one(tmp_path / "steps.parquet")
    assert batch.start_ns.tolist() == [START // 1000 * 1000]


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: object) -> ModuleType:
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError(name="pyarrow")
        return real(name, *rest)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(builtins, "__import__", refuse)
    (tmp_path / "steps.parquet").write_bytes(b"PAR1....PAR1")
    batches, rejected = read_all(tmp_path / "steps.parquet")
    assert not batches
    assert "otel-llmprism[parquet]" in rejected.describe()[0]


def test_gzip_is_unpacked_whatever_the_name(tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_bytes(gzip.compress(f"{HEADER}\n{ROW}\n".encode()))
    batch, _ = read_one(tmp_path / "steps.csv")
    check_row(batch)


def test_torn_gzip_gives_the_rows_before_the_tear(tmp_path: Path) -> None:
    lines = [f"{START + n * 977},{8_000_000 + n * n},e,decode,2,0,2,{n * 31},i" for n in range(5000)]
    whole = gzip.compress("\n".join([HEADER, *lines]).encode())
    (tmp_path / "steps.csv.gz").write_bytes(whole[: len(whole) // 2])
    batches, rejected = read_all(tmp_path / "steps.csv.gz")
    assert sum(map(len, batches)) > 100
    assert rejected.count >= 1
    assert "damaged" in " ".join(rejected.describe())


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (f"{START},,e,decode,2,0,2,64,i", "duration_ns is missing"),
        (f"{START},soon,e,decode,2,0,2,64,i", "duration_ns cannot be 'soon'"),
        (f"{START},0,e,decode,2,0,2,64,i", "duration_ns cannot be '0'"),
        (f"{START},-5,e,decode,2,0,2,64,i", "duration_ns cannot be '-5'"),
        (f"{START},inf,e,decode,2,0,2,64,i", "duration_ns cannot be 'inf'"),
        (f"{START},nan,e,decode,2,0,2,64,i", "duration_ns cannot be 'nan'"),
        (f"{START},{10**30},e,decode,2,0,2,64,i", "duration_ns cannot be"),
        ("noon,8,e,decode,2,0,2,64,i", "start_ns cannot be 'noon'"),
        (f"{START},8,e,decode,-2,0,2,64,i", "requests cannot be '-2'"),
        (f"{START},8,e,decode,2,many,2,64,i", "prefill_tokens cannot be 'many'"),
        (f"{START},8,e", "3 cells, the header has 9"),
    ],
)
def test_bad_row_is_named_with_its_line_and_costs_only_itself(tmp_path: Path, row: str, why: str) -> None:
    path = write_text(tmp_path, HEADER, ROW, row, ROW)
    batch, rejected = read_one(path)
    assert batch.row.tolist() == [0, 2]
    assert rejected.count == 1
    assert rejected.describe()[0].startswith(f"{path}: line 3: {why}")


@pytest.mark.parametrize(
    "line", ["{", "[1]", "7", "[" * 100_000, '{"duration_ns": ' + "9" * 5000 + "}", "\x00"]
)
def test_bad_json_line_costs_only_itself(tmp_path: Path, line: str) -> None:
    good = json.dumps(RECORD)
    batch, rejected = read_one(write_text(tmp_path, good, line, good))
    assert batch.row.tolist() == [0, 2]
    assert (rejected.count, rejected.first[0][1]) == (1, "line 2")


def test_line_without_end_is_skipped_not_kept_in_memory(tmp_path: Path) -> None:
    good = json.dumps(RECORD)
    batch, rejected = read_one(write_text(tmp_path, good, "x" * (3 * MAX_LINE_BYTES), good))
    assert len(batch) == 2
    assert rejected.first[0][1:] == ("line 2", f"longer than {MAX_LINE_BYTES} bytes")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "nothing in it"),
        (b"a,b\n1,2\n", "no column duration_ns"),
        (b'{"a": 1}\n', "no column duration_ns"),
        (b"duration_ns,x,x\n1,2,3\n", "'x' twice"),
        (b"PAR1 and then nothing", "at row 0"),
        (b"\x1f\x8b\x08 no gzip", "nothing in it"),
        (b",".join(b"c%d" % n for n in range(300)) + b"\n", "300 columns"),
    ],
)
def test_file_that_is_no_step_record_is_said_in_one_line(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "steps").write_bytes(content)
    batches, rejected = read_all(tmp_path / "steps")
    assert not batches
    assert len(rejected.describe()) == 1
    assert why in rejected.describe()[0]
    assert "\n" not in rejected.describe()[0]


def test_absent_file_is_said_not_raised(tmp_path: Path) -> None:
    _, rejected = read_all(tmp_path / "nowhere.csv")
    assert rejected.describe() == [f"{tmp_path / 'nowhere.csv'}: No such file or directory"]


def test_further_numbers_are_work_but_times_and_positions_are_not(tmp_path: Path) -> None:
    header = "duration_ns,decode_tokens,images,gap_ns,step,hour,waiting,note,kv_prefill"
    batch, rejected = read_one(write_text(tmp_path, header, "5,1,3,70,9,12,4,fine,8", "5,1,,70,9,12,4,,16"))
    assert batch.work.names == (DECODE_TOKENS, "images", "kv_prefill")
    assert batch.left_out == ("gap_ns", "step", "hour", "waiting")
    np.testing.assert_array_equal(batch.work.read_feature("images"), [3, np.nan])
    assert rejected.count == 0


def test_odd_cell_of_a_further_column_is_not_told_and_costs_no_row(tmp_path: Path) -> None:
    batch, _ = read_one(write_text(tmp_path, "duration_ns,images", "5,1", "5,n/a", "5,-3", "5,1e300", "5,2"))
    np.testing.assert_array_equal(batch.work.read_feature("images"), [1, np.nan, np.nan, np.nan, 2])


def test_feature_that_nobody_tells_is_nan_in_every_row(tmp_path: Path) -> None:
    batch, _ = read_one(write_text(tmp_path, HEADER, ROW, ROW))
    assert np.isnan(batch.work.read_feature(GRAPH_MODE)).all()


@pytest.mark.parametrize(
    ("told", "prefill", "decode", "kind"),
    [
        ("", 5, 0, StepKind.PREFILL),
        ("", 5, 2, StepKind.MIXED),
        ("", 0, 2, StepKind.DECODE),
        ("", 0, 0, StepKind.UNKNOWN),
        ("forward", 0, 2, StepKind.DECODE),
        ("Train", 5, 0, StepKind.TRAIN),
    ],
)
def test_kind_that_is_not_told_follows_from_the_tokens(
    tmp_path: Path, told: str, prefill: int, decode: int, kind: StepKind
) -> None:
    path = write_text(
        tmp_path, "duration_ns,kind,prefill_tokens,decode_tokens", f"5,{told},{prefill},{decode}"
    )
    assert read_one(path)[0].work.kind.tolist() == [kind]


def test_long_file_comes_in_batches_whose_rows_count_on(tmp_path: Path) -> None:
    lines = [json.dumps({"duration_ns": 5 + n, PREFILL_TOKENS: n}) for n in range(ROWS_AT_ONCE + 10)]
    batches, _ = read_all(write_text(tmp_path, *lines))
    assert [len(batch) for batch in batches] == [ROWS_AT_ONCE, 10]
    assert batches[1].row[0] == ROWS_AT_ONCE


def test_only_the_first_bad_rows_are_remembered_but_all_are_counted(tmp_path: Path) -> None:
    _, rejected = read_all(write_text(tmp_path, "duration_ns", *["x"] * 500, "7"))
    assert rejected.count == 500
    assert len(rejected.describe()) == 21
    assert rejected.describe()[-1] == "480 more rejected"
