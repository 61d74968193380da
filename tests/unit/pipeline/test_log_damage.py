import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_llmprism.native.log_frame import (
    KIND_REQUEST,
    RecordHeader,
    SegmentHeader,
    encode_record_header,
    measure_record_header,
    measure_segment_header,
)
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.log.write_ahead_log import WriteAheadLog

OpenLog = Callable[..., WriteAheadLog]
HEADER, SEGMENT_HEADER = measure_record_header(1), measure_segment_header(1)
PAYLOADS = [b"payload %d " % number * 4 for number in range(5)]
FRAME = HEADER + len(PAYLOADS[0])


def read_payloads(log: WriteAheadLog) -> list[bytes]:
    payloads = []
    while (record := log.read_next()) is not None:
        payloads.append(record.payload)
    return payloads


@pytest.fixture
def written(open_log: OpenLog, tmp_path: Path) -> Path:
    """One sealed segment with five records of the same size."""
    log = open_log()
    for payload in PAYLOADS:
        log.append(1, payload)
    log.close()
    (path,) = (tmp_path / "log").glob("*.wal")
    return path


def lost(counters: Counters) -> float:
    return counters.value("llmprism.lost", stage="log", cause="corrupt")


def torn(counters: Counters) -> float:
    return counters.value("llmprism.log.torn_tails")


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x40
    path.write_bytes(raw)


@pytest.mark.parametrize("cut", [1, HEADER - 1, HEADER, HEADER + 1, FRAME - 1])
def test_unfinished_write_at_the_end_is_passed_over_and_counted(
    open_log: OpenLog, written: Path, counters: Counters, cut: int
) -> None:
    end_of_fourth = SEGMENT_HEADER + 4 * FRAME
    written.write_bytes(written.read_bytes()[: end_of_fourth + cut])
    assert read_payloads(open_log()) == PAYLOADS[:4]
    assert (torn(counters), lost(counters)) == (1, 0)


def test_log_that_ends_between_records_is_whole(open_log: OpenLog, written: Path, counters: Counters) -> None:
    written.write_bytes(written.read_bytes()[: SEGMENT_HEADER + 4 * FRAME])
    assert read_payloads(open_log()) == PAYLOADS[:4]
    assert (torn(counters), lost(counters)) == (0, 0)


def test_damaged_payload_costs_its_record_alone(open_log: OpenLog, written: Path, counters: Counters) -> None:
    flip(written, SEGMENT_HEADER + FRAME + HEADER + 3)
    assert read_payloads(open_log()) == [PAYLOADS[0], *PAYLOADS[2:]]
    assert (torn(counters), lost(counters)) == (0, 1)


@pytest.mark.parametrize("at", range(HEADER))
def test_damaged_record_header_costs_its_record_alone(
    open_log: OpenLog, written: Path, counters: Counters, at: int
) -> None:
    flip(written, SEGMENT_HEADER + 2 * FRAME + at)
    assert read_payloads(open_log()) == PAYLOADS[:2] + PAYLOADS[3:]
    assert (torn(counters), lost(counters)) == (0, 1)


def test_hole_over_several_records_is_counted_exactly(
    open_log: OpenLog, written: Path, counters: Counters
) -> None:
    raw = bytearray(written.read_bytes())
    raw[SEGMENT_HEADER + FRAME + 5 : SEGMENT_HEADER + 3 * FRAME + 5] = bytes(2 * FRAME)
    written.write_bytes(raw)
    assert read_payloads(open_log()) == [PAYLOADS[0], PAYLOADS[4]]
    assert lost(counters) == 3


def test_damage_to_the_last_records_shows_against_the_seal(
    open_log: OpenLog, written: Path, counters: Counters
) -> None:
    raw = bytearray(written.read_bytes())
    raw[SEGMENT_HEADER + 3 * FRAME : SEGMENT_HEADER + 5 * FRAME] = bytes(2 * FRAME)
    written.write_bytes(raw)
    assert read_payloads(open_log()) == PAYLOADS[:3]
    assert (torn(counters), lost(counters)) == (0, 2)


def test_zeros_at_the_end_are_an_unfinished_write(
    open_log: OpenLog, written: Path, counters: Counters
) -> None:
    written.write_bytes(written.read_bytes()[: SEGMENT_HEADER + 2 * FRAME] + bytes(700_000))
    assert read_payloads(open_log()) == PAYLOADS[:2]
    assert (torn(counters), lost(counters)) == (1, 0)


def test_damaged_segment_header_sets_the_file_aside_and_the_next_segment_is_read(
    open_log: OpenLog, written: Path, counters: Counters
) -> None:
    log = open_log()
    log.append(1, b"next segment")
    log.close()
    flip(written, 20)
    assert read_payloads(open_log()) == [b"next segment"]
    assert lost(counters) == 1
    assert written.with_suffix(".damaged").exists()
    assert not written.exists()


def test_segment_cut_within_its_header_held_nothing(
    open_log: OpenLog, written: Path, counters: Counters
) -> None:
    written.write_bytes(written.read_bytes()[:10])
    assert read_payloads(open_log()) == []
    assert (torn(counters), lost(counters)) == (1, 0)
    assert not written.exists()


def test_damaged_acknowledgement_sends_again_and_never_frees_another(
    open_log: OpenLog, written: Path, counters: Counters
) -> None:
    log = open_log()
    for payload in PAYLOADS:
        record = log.read_next()
        assert record is not None
        if payload in PAYLOADS[1:3]:
            log.free(record.segment, record.sequence)
    log.close()
    acks = written.with_suffix(".ack")
    raw = bytearray(acks.read_bytes())
    raw[0] ^= 4
    acks.write_bytes(bytes(raw) + b"torn")
    log = open_log()
    assert read_payloads(log) == [PAYLOADS[0], PAYLOADS[1], PAYLOADS[3], PAYLOADS[4]]
    log.close()
    assert acks.stat().st_size == 16, "the torn entry is cut, so that later ones are aligned"


def test_freed_records_in_a_hole_are_no_loss(open_log: OpenLog, written: Path, counters: Counters) -> None:
    log = open_log()
    for _ in range(3):
        record = log.read_next()
        assert record is not None
        log.free(record.segment, record.sequence)
    log.close()
    raw = bytearray(written.read_bytes())
    raw[SEGMENT_HEADER : SEGMENT_HEADER + 3 * FRAME] = bytes(3 * FRAME)
    written.write_bytes(raw)
    assert read_payloads(open_log()) == PAYLOADS[3:]
    assert lost(counters) == 0


def test_payload_that_quotes_a_record_cannot_pass_for_one(
    open_log: OpenLog, tmp_path: Path, counters: Counters
) -> None:
    forged_header = SegmentHeader(version=1, segment_id=1, created_ns=0, salt=0)
    forged_record = RecordHeader(zlib.crc32(b"forged"), 6, 5, 1, KIND_REQUEST, 0)
    forged = encode_record_header(forged_header, forged_record) + b"forged"
    log = open_log()
    log.append(1, forged * 3)
    log.append(1, b"true")
    log.close()
    (path,) = (tmp_path / "log").glob("*.wal")
    flip(path, SEGMENT_HEADER + 4)
    assert read_payloads(open_log()) == [b"true"]
    assert lost(counters) == 1


def test_damage_across_the_read_window_is_passed_over(
    open_log: OpenLog, tmp_path: Path, counters: Counters
) -> None:
    log = open_log(segment_bytes=2 << 20)
    payloads = [bytes([number]) * 100_000 for number in range(1, 9)]
    for payload in payloads:
        log.append(1, payload)
    log.close()
    (path,) = (tmp_path / "log").glob("*.wal")
    for record in (0, 2, 5, 6):
        flip(path, SEGMENT_HEADER + record * (HEADER + 100_000) + 9)
    assert read_payloads(open_log()) == [payloads[1], payloads[3], payloads[4], payloads[7]]
    assert lost(counters) == 4


def test_damaged_log_is_drained_and_goes(open_log: OpenLog, written: Path, tmp_path: Path) -> None:
    flip(written, SEGMENT_HEADER + FRAME)
    log = open_log()
    while (record := log.read_next()) is not None:
        log.free(record.segment, record.sequence)
    log.close()
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["lock"]
