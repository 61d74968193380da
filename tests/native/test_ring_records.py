# The byte positions below are written out by hand: they are the format, not a copy of the code.
import struct

import numpy as np
import pytest

from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ring_dtypes import RING_DTYPES
from otel_llmprism.native.ring_layout import SLOT_BYTES
from otel_llmprism.native.ring_records import Kind, Member

RECORDS = {
    Kind.STEP_SCHEDULED: records.pack_step_scheduled(1, 2, 3, 2, 1, 0.5, 7, 8, 9, 10, 11, 12, 13, 0.25, 3, 2),
    Kind.STEP_OUTPUT: records.pack_step_output(1, 2, 3, 4, 5, 6),
    Kind.STEP_RANK: records.pack_step_rank(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
    Kind.REQUEST_ARRIVED: records.pack_request_arrived(
        1, 2, b"T" * 16, b"S" * 8, b"P" * 8, "req", sampled=True
    ),
    Kind.REQUEST_EVENT: records.pack_request_event(1, 2, 3, 4, 5),
    Kind.REQUEST_ENDED: records.pack_request_ended(1, 2, 3, 4, 5, 6, 7, 1, error=True),
    Kind.PAUSE: records.pack_pause(1, 2, 3),
    Kind.HOOK_OFF: records.pack_hook_off("schedule", 1, 2, 3, 1),
    Kind.COLLECTIVE: records.pack_collective(1, 2, 3, 4, 5, 6, 7, 8, 9),
    Kind.STEP_PHASES: records.pack_step_phases(1, 2, 3, 4, 5, 6, 7, 8),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_record_is_one_slot_that_opens_with_its_kind(kind: Kind) -> None:
    record = RECORDS[kind]
    assert len(record) == 128
    assert record[:8] == struct.pack("<HHI", kind, 0, 0)


@pytest.mark.parametrize("kind", RING_DTYPES)
def test_numpy_layout_of_every_kind_is_exactly_one_slot(kind: Kind) -> None:
    assert np.dtype(RING_DTYPES[kind]).itemsize == SLOT_BYTES


def test_scheduled_step_is_laid_out_byte_for_byte() -> None:
    record = RECORDS[Kind.STEP_SCHEDULED]
    expected = struct.pack("<QQQdQ", 1, 2, 3, 0.5, 10) + struct.pack("<IIIIIIf", 7, 8, 9, 11, 12, 13, 0.25)
    expected += bytes([2, 1, 3, 2]) + struct.pack("<HH", 0, 0)
    assert record[8:] == expected.ljust(120, b"\0")


def test_rank_request_and_pause_records_are_laid_out_byte_for_byte() -> None:
    assert RECORDS[Kind.STEP_RANK][8:72] == struct.pack("<QQQQQIIIIII", 1, 3, 4, 5, 6, 2, 7, 8, 9, 10, 11)
    arrived = RECORDS[Kind.REQUEST_ARRIVED]
    assert arrived[8:24] == struct.pack("<QQ", 1, 2)
    assert arrived[24:56] == b"T" * 16 + b"S" * 8 + b"P" * 8
    assert arrived[56:64] == struct.pack("<BBHHH", 1, 0, 3, 0, 0)
    assert arrived[64:] == b"req".ljust(64, b"\0")
    assert RECORDS[Kind.REQUEST_ENDED][8:46] == struct.pack("<QQIIIIIBB", 1, 2, 3, 4, 5, 6, 7, 1, 1)
    assert RECORDS[Kind.PAUSE][8:25] == struct.pack("<QQB", 1, 2, 3)
    assert RECORDS[Kind.HOOK_OFF][8:72] == struct.pack("<QQQB7x32s", 1, 2, 3, 1, b"schedule")


def test_collective_and_phase_records_are_laid_out_byte_for_byte() -> None:
    assert RECORDS[Kind.COLLECTIVE][8:65] == struct.pack("<QQQQQQIIB", 1, 3, 6, 7, 8, 9, 2, 4, 5)
    assert RECORDS[Kind.STEP_PHASES][8:64] == struct.pack("<QQQQQQII", 1, 3, 4, 5, 6, 7, 2, 8)


def test_a_group_is_one_number_for_all_its_members_and_another_for_other_ranks() -> None:
    assert records.derive_group_hash("tp", [0, 1]) == records.derive_group_hash("tp", (0, 1))
    assert records.derive_group_hash("tp", [0, 1]) != records.derive_group_hash("tp", [2, 3])
    assert records.derive_group_hash("tp", [0, 1]) != records.derive_group_hash("dp", [0, 1])


@pytest.mark.parametrize("kind", RECORDS)
def test_numpy_reads_back_what_was_packed(kind: Kind) -> None:
    row = np.frombuffer(RECORDS[kind], dtype=np.dtype(RING_DTYPES[kind]))[0]
    assert row["slot_kind"] == kind
    names = set(row.dtype.names)
    if kind == Kind.STEP_SCHEDULED:
        assert (row["step"], row["requests"], row["kv_tokens"], row["kv_usage"]) == (1, 7, 10, 0.25)
    if kind == Kind.STEP_RANK:
        assert (row["start_ns"], row["rank"], row["ep"]) == (3, 2, 11)
    if kind == Kind.REQUEST_EVENT:
        assert (row["handle"], row["time_ns"], row["event"], row["step"], row["tokens"]) == (1, 2, 3, 4, 5)
    assert "slot_kind" in names


def test_members_travel_in_the_record_of_their_step_seven_to_a_slot() -> None:
    members = [
        records.pack_member(Member.JOINED, slot, 1000 + slot, 5 * slot, prefill=True) for slot in range(8)
    ]
    record = records.pack_step_scheduled(9, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, members)
    assert len(record) == 3 * 128
    slots = np.frombuffer(record[128:], dtype=np.dtype(RING_DTYPES[Kind.STEP_MEMBERS]))
    assert slots["step"].tolist() == [9, 9]
    assert slots["entries"].tolist() == [7, 1]
    first = slots["members"][0][3]
    assert (first["handle"], first["slot"]) == (1003, 3)
    assert first["word"] == 1 << 29 | 1 << 28 | 15


def test_long_ids_continue_in_text_slots_and_are_cut_to_a_hash_beyond_the_bound() -> None:
    own, external = "r" * 160, "e" * 500
    record = records.pack_request_arrived(1, 2, bytes(16), bytes(8), bytes(8), own, external, sampled=False)
    texts = np.frombuffer(record[128:], dtype=np.dtype(RING_DTYPES[Kind.REQUEST_TEXT]))
    assert texts["which"].tolist() == [1, 2, 3]
    assert texts["text_bytes"].tolist() == [96, 96, 64]
    kept = bytes(texts["text"][1]) + bytes(texts["text"][2])[:64]
    assert kept.startswith(b"e" * 143 + b"~")
    assert records.bound_id(external) == kept
    assert records.bound_id("e" * 501) != kept


def test_cutting_an_id_never_splits_a_character() -> None:
    assert records.bound_id("é" * 200).decode().startswith("é" * 71 + "~")


def test_no_record_has_room_for_content() -> None:
    texts = {
        (kind, field[0])
        for kind, fields in RING_DTYPES.items()
        for field in fields
        if str(field[1]) in {"V32", "u1"} and (len(field) > 2 or field[1] == "V32")
    }
    assert texts == {
        (Kind.REQUEST_ARRIVED, "request_id"),
        (Kind.REQUEST_TEXT, "text"),
        (Kind.HOOK_OFF, "hook"),
    }


def test_handles_are_the_same_in_every_process_and_never_zero() -> None:
    # From `printf req-1 | b2sum -l 64`, read little-endian.
    assert records.derive_request_handle("req-1") == 0x0B874A57DE544704
    assert records.derive_request_handle("req-1") != records.derive_request_handle("req-2")
