import errno
import os
import stat
from pathlib import Path

import pytest

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.ledger_folder import read_ledger_folder
from otel_llmprism.exporters.ledger_files import LedgerFiles, LedgerFilesConfig
from otel_llmprism.exporters.otlp_logs import LedgerRecord
from otel_llmprism.native.ledger_frames import SegmentOwner
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerBody, LedgerSource
from otel_llmprism.receivers.ledger_files import list_segments, read_segment

OWNER = SegmentOwner("engine", "ab" * 16, "node", {"service.name": "chat"}, {"gen_ai.request.model": "m"})


class Problems(list[tuple[str, int, str]]):
    def report(self, path: Path, at: int, why: str) -> None:
        self.append((path.name, at, why))


def make_record(seq: int, body: bytes = b"body") -> LedgerRecord:
    return LedgerRecord("llmprism.ledger", body, 0, "node", seq, 1000 + seq, 10 * seq, 10 * seq + 9)


def read_all(folder: Path, problems: Problems | None = None) -> list[LedgerBody]:
    problems = Problems() if problems is None else problems
    segments = list_segments(folder, problems.report)
    return [body for segment in segments for body in read_segment(segment, problems.report)]


def make_files(folder: Path, counters: Counters, max_bytes: int = 1 << 20) -> LedgerFiles:
    return LedgerFiles(LedgerFilesConfig(folder, max_bytes), OWNER, counters)


def test_records_come_back_with_their_owner(tmp_path: Path) -> None:
    files = make_files(tmp_path / "new" / "folder", Counters())
    assert files.append(make_record(0))
    assert files.append(make_record(1, b"other"))
    files.close()
    source = LedgerSource("engine", "ab" * 16, "node")
    assert read_all(tmp_path / "new" / "folder") == [
        LedgerBody(source, "llmprism.ledger", 0, b"body"),
        LedgerBody(source, "llmprism.ledger", 1, b"other"),
    ]
    (segment,) = list_segments(tmp_path / "new" / "folder", Problems().report)
    assert segment.owner == OWNER
    assert stat.S_IMODE(segment.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(segment.path.parent.stat().st_mode) == 0o700


def test_restarted_writer_opens_a_new_segment_after_the_old_ones(tmp_path: Path) -> None:
    for seq in range(3):
        files = make_files(tmp_path, Counters())
        files.append(make_record(seq))
        files.close()
    assert [body.seq for body in read_all(tmp_path)] == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) == 3


def test_oldest_segments_go_when_the_bound_is_reached_and_are_counted(tmp_path: Path) -> None:
    counters = Counters()
    files = make_files(tmp_path, counters, max_bytes=8000)
    for seq in range(40):
        assert files.append(make_record(seq, bytes(500)))
    files.close()
    kept = [body.seq for body in read_all(tmp_path)]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 8000
    assert kept == list(range(kept[0], 40))
    assert 8 < len(kept) < 20
    assert counters.value("llmprism.lost", stage="ledger_files", cause="oldest_segment") > 0


def test_torn_last_record_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    files = make_files(tmp_path, Counters())
    for seq in range(3):
        files.append(make_record(seq))
    files.close()
    (path,) = tmp_path.iterdir()
    raw = path.read_bytes()
    for cut in (1, 30, 40):
        path.write_bytes(raw[:-cut])
        problems = Problems()
        assert [body.seq for body in read_all(tmp_path, problems)] == [0, 1]
        (problem,) = problems
        assert problem[1] > 0
        assert "torn" in problem[2]


@pytest.mark.parametrize("at", range(0, 200, 7))
def test_flipped_bytes_never_give_a_wrong_record(tmp_path: Path, at: int) -> None:
    files = make_files(tmp_path, Counters())
    for seq in range(3):
        files.append(make_record(seq))
    files.close()
    (path,) = tmp_path.iterdir()
    raw = bytearray(path.read_bytes())
    raw[at % len(raw)] ^= 0x41
    path.write_bytes(raw)
    problems = Problems()
    read = read_all(tmp_path, problems)
    assert [body.seq for body in read] == list(range(len(read)))
    assert all(body.body == b"body" for body in read)
    assert len(read) == 3 or problems or raw[10:12] != b"\0\0"


def test_foreign_file_is_reported_by_name_and_newer_one_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.ledger").write_bytes(b"something else entirely")
    (tmp_path / "b.ledger").write_bytes(b"LLPSEG\r\n\x02\0" + bytes(30))
    problems = Problems()
    assert read_all(tmp_path, problems) == []
    assert [(name, why.partition(",")[0]) for name, _, why in problems] == [
        ("a.ledger", "not a ledger segment"),
        ("b.ledger", "segment format 2"),
    ]


def test_segment_of_the_format_before_is_read(tmp_path: Path) -> None:
    files = make_files(tmp_path, Counters())
    files.append(make_record(0))
    files.close()
    (path,) = tmp_path.iterdir()
    raw = path.read_bytes()
    assert raw[8:10] == b"\1\0"
    path.write_bytes(raw[:8] + b"\0\0" + raw[10:])
    assert [body.seq for body in read_all(tmp_path)] == [0]


def test_full_disk_costs_counted_records_and_leaves_whole_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = Counters()
    files = make_files(tmp_path, counters)
    files.append(make_record(0))
    real_write = os.write

    def write_half(descriptor: int, raw: bytes) -> int:
        return real_write(descriptor, raw[: len(raw) // 2])

    monkeypatch.setattr(os, "write", write_half)
    assert not files.append(make_record(1))
    monkeypatch.setattr(os, "write", real_write)
    assert files.append(make_record(2))
    files.close()
    assert [body.seq for body in read_all(tmp_path)] == [0, 2]
    assert counters.value("llmprism.lost", stage="ledger_files", cause="no_space_left_on_device") == 1


def test_folder_that_cannot_be_written_costs_counted_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refuse)
    counters = Counters()
    assert not make_files(tmp_path, counters).append(make_record(0))
    assert counters.value("llmprism.lost", stage="ledger_files", cause="read-only_file_system") == 1


def test_unwanted_frames_are_skipped(tmp_path: Path) -> None:
    files = make_files(tmp_path, Counters())
    for seq in range(4):
        files.append(make_record(seq))
    files.close()
    problems = Problems()
    (segment,) = list_segments(tmp_path, problems.report)
    wanted = read_segment(segment, problems.report, lambda frame: frame.last_step >= 20)
    assert [body.seq for body in wanted] == [2, 3]
    assert problems == []


def test_folder_comes_from_the_environment_or_the_users_state() -> None:
    assert read_ledger_folder({"HOME": "/home/a"}).folder == Path("/home/a/.local/state/otel-llmprism/ledger")
    named = read_ledger_folder({"OTEL_LLMPRISM_LEDGER_DIR": "/x", "OTEL_LLMPRISM_LEDGER_BYTES": "5000"})
    assert (named.folder, named.max_bytes) == (Path("/x"), 5000)
    with pytest.raises(ConfigError, match="OTEL_LLMPRISM_LEDGER_BYTES=much"):
        read_ledger_folder({"OTEL_LLMPRISM_LEDGER_BYTES": "much"})
