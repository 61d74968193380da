import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.pipeline.log.errors import LogFullError, LogStartError
from otel_llmprism.pipeline.log.reader import LogRecord
from otel_llmprism.pipeline.log.write_ahead_log import WriteAheadLog

OpenLog = Callable[..., WriteAheadLog]


def read_all(log: WriteAheadLog) -> list[LogRecord]:
    records = []
    while (record := log.read_next()) is not None:
        records.append(record)
    return records


def read_payloads(log: WriteAheadLog) -> list[bytes]:
    return [record.payload for record in read_all(log)]


def append_all(log: WriteAheadLog, *payloads: bytes) -> None:
    for payload in payloads:
        log.append(1, payload)


def list_names(tmp_path: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in (tmp_path / "log").glob(f"*{suffix}"))


def test_what_was_not_freed_is_given_again_in_order_after_a_reopen(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=100)
    positions = [log.append(2, b"%03d" % number * 10) for number in range(12)]
    for freed in (0, 4, 11):
        log.free(positions[freed].segment, positions[freed].sequence)
    log.close()
    again = read_all(open_log())
    assert [record.payload[:3] for record in again] == [b"%03d" % n for n in range(12) if n not in (0, 4, 11)]
    assert {record.signal for record in again} == {2}


def test_segments_go_when_all_of_their_records_are_freed(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(segment_bytes=100)
    positions = [log.append(1, bytes(60)) for _ in range(3)]
    assert len(list_names(tmp_path, ".wal")) == 3
    for position in positions:
        log.free(position.segment, position.sequence)
    assert len(list_names(tmp_path, ".wal")) == 1, "only the one that is written to is left"
    log.close()
    assert list_names(tmp_path, ".wal") == []
    assert list_names(tmp_path, ".ack") == []


def test_replayed_segments_go_when_freed(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(segment_bytes=100)
    append_all(log, b"a" * 60, b"b" * 60)
    log.close()
    log = open_log()
    for record in read_all(log):
        log.free(record.segment, record.sequence)
    assert len(list_names(tmp_path, ".wal")) == 1
    log.close()
    assert list_names(tmp_path, "") == ["lock"]


def test_full_log_refuses_keeps_everything_and_takes_again_when_freed(open_log: OpenLog) -> None:
    log = open_log(max_bytes=1 << 20, segment_bytes=64 << 10)
    positions = []
    with pytest.raises(LogFullError, match="1048576 bytes"):
        positions += [log.append(1, b"%04d" % number * 1000) for number in range(1000)]
    assert log.measure() <= 1 << 20
    kept = read_all(log)
    assert [record.payload[:4] for record in kept] == [b"%04d" % number for number in range(len(kept))]
    for record in kept[:16]:
        log.free(record.segment, record.sequence)
    log.append(1, b"again")


def test_log_of_one_segment_takes_again_once_all_in_it_is_freed(open_log: OpenLog) -> None:
    log = open_log(max_bytes=1 << 20, segment_bytes=1 << 20)
    first = log.append(1, bytes(900_000))
    with pytest.raises(LogFullError):
        log.append(1, bytes(900_000))
    log.free(first.segment, first.sequence)
    log.append(1, bytes(900_000))


def test_measured_bytes_are_the_bytes_on_the_disk(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(segment_bytes=1000)
    positions = [log.append(1, bytes(100 * number)) for number in range(20)]
    for position in positions:
        log.free(position.segment, position.sequence)
    log.close()
    log = open_log(segment_bytes=1000)
    append_all(log, *[bytes(100)] * 30)
    log.close()
    log = open_log(segment_bytes=1000)
    records = read_all(log)
    for record in records[:7]:
        log.free(record.segment, record.sequence)
    on_disk = sum(path.stat().st_size for path in (tmp_path / "log").iterdir() if path.name != "lock")
    assert log.measure() == on_disk


def test_reading_goes_on_at_the_record_that_the_queue_refused(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=100)
    assert read_all(log) == []
    append_all(log, b"queued" * 20)
    log.read_from(log.append(1, b"first spilled" * 8))
    append_all(log, b"second spilled" * 8, b"third")
    assert [payload[:5] for payload in read_payloads(log)] == [b"first", b"secon", b"third"]
    append_all(log, b"fourth")
    assert read_payloads(log) == [b"fourth"]


def test_folder_is_private_and_so_are_its_files(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    position = log.append(1, b"a")
    log.free(position.segment, position.sequence)
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "log").iterdir()}
    assert set(modes.values()) == {0o600}
    assert len(modes) == 3


def test_folder_that_others_may_read_is_closed_to_them(open_log: OpenLog, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir(mode=0o755)
    open_log()
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700


def test_second_process_is_told_who_holds_the_folder(open_log: OpenLog) -> None:
    open_log()
    with pytest.raises(LogStartError, match=f"in use by process {os.getpid()}"):
        open_log()


def test_file_in_the_place_of_the_folder_is_a_clear_error(open_log: OpenLog, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("no folder")
    with pytest.raises(LogStartError, match="cannot be used"):
        open_log()


def test_freeing_after_the_close_is_quiet(open_log: OpenLog) -> None:
    log = open_log()
    position = log.append(1, b"a")
    log.close()
    log.free(position.segment, position.sequence)
    assert read_payloads(open_log()) == [b"a"]


def test_same_log_opens_twice_over(open_log: OpenLog) -> None:
    log = open_log()
    log.append(1, b"a")
    log.close()
    log.open()
    assert read_payloads(log) == [b"a"]


def test_segment_of_a_newer_format_is_refused_by_name_and_kept(open_log: OpenLog, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir(mode=0o700)
    newer = tmp_path / "log" / "0000000000000007.wal"
    newer.write_bytes(b"LLMPWAL\n" + (2).to_bytes(2, "little") + bytes(100))
    with pytest.raises(LogStartError, match=r"0000000000000007.wal is of format 2.*reads \(0, 1\)"):
        open_log()
    assert newer.exists()


def test_numbers_go_on_above_every_file_that_is_there(open_log: OpenLog, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir(mode=0o700)
    (tmp_path / "log" / "0000000000000041.damaged").write_bytes(b"x")
    open_log().append(1, b"a")
    assert list_names(tmp_path, ".wal") == ["0000000000000042.wal"]


def test_large_and_empty_payloads_come_back_whole(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1000)
    payloads = [os.urandom(size) for size in (0, 1, 300_000, 0, 131_072, 131_071, 999, 5)]
    append_all(log, *payloads)
    log.close()
    assert read_payloads(open_log()) == payloads


def test_nothing_is_lost_or_torn_in_an_undamaged_log(open_log: OpenLog, counters: Counters) -> None:
    log = open_log(segment_bytes=200)
    positions = [log.append(1, b"x" * 50) for _ in range(20)]
    for position in positions[::2]:
        log.free(position.segment, position.sequence)
    log.close()
    assert len(read_payloads(open_log())) == 10
    assert counters.read_all() == []


def test_segment_that_was_read_to_its_end_while_empty_stays_for_what_comes(open_log: OpenLog) -> None:
    log = open_log()
    assert log.read_next(is_last=True) is None
    log.append(1, b"a")
    log.close()
    assert read_payloads(open_log()) == [b"a"]


def test_segment_that_cannot_be_read_waits_for_the_next_start(open_log: OpenLog, counters: Counters) -> None:
    class DeafDisk(Disk):
        def read(self, fd: int, size: int, at: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    log = open_log(segment_bytes=100)
    append_all(log, b"a" * 90, b"b" * 90)
    log.close()
    log = open_log(disk=DeafDisk())
    assert read_payloads(log) == []
    log.close()
    assert counters.value("llmprism.log.errors", operation="read", cause="io") == 2
    assert read_payloads(open_log()) == [b"a" * 90, b"b" * 90]
