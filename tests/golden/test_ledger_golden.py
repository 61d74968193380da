# The committed bytes are what old and new engines have on disk: whoever changes the format meets them here.
# make_ledger_goldens.py wrote them; the expected numbers below are worked out by hand from its records.
import struct
from pathlib import Path

import pytest

from otel_llmprism.exporters.ledger_chunks import encode_chunk
from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.model.steps import MEMBERS_COMPLETE, UNKNOWN, LedgerTables
from otel_llmprism.native import ledger, ledger_twin
from otel_llmprism.native.ledger_layout import CHUNK_HEADER, Status, parse_anchor
from otel_llmprism.native.ring_records import derive_group_hash
from otel_llmprism.receivers.ledger_tables import wrap_columns

HERE = Path(__file__).parent
CURRENT = (HERE / "ledger-1.0.bin").read_bytes()
BEFORE = (HERE / "ledger-0.1.bin").read_bytes()
TOO_OLD = (HERE / "ledger-0.0.bin").read_bytes()


def decode(chunk: bytes) -> LedgerTables:
    decoded = ledger.decode_chunks([chunk])
    assert decoded.refused == []
    assert ledger.DecodedChunks(*ledger_twin.decode_chunks([chunk])) == decoded
    return wrap_columns(decoded.columns)


@pytest.mark.parametrize("chunk", [CURRENT, BEFORE])
def test_this_format_and_the_one_before_say_the_same(chunk: bytes) -> None:
    tables = decode(chunk)
    assert tables.steps.step.tolist() == [0, 1, 2]
    assert tables.steps.schedule_start_ns.tolist() == [1000, 1100, 1200]
    assert tables.steps.output_ready_ns.tolist() == [1070, 1170, 1270]
    assert tables.steps.cycle_ns.tolist() == [70, 70, 70]
    assert tables.steps.sample_ns.tolist() == [int(UNKNOWN)] * 3
    assert tables.steps.kept_probability.tolist() == [0.25] * 3
    assert tables.steps.flags.tolist() == [MEMBERS_COMPLETE] * 3
    assert tables.ranks.end_ns.tolist() == [1060, 1160, 1260, 1061, 1161, 1261]
    assert tables.identities.tp[tables.ranks.identity_row].tolist() == [0, 0, 0, 1, 1, 1]
    assert tables.members.tokens.tolist() == [0, 5, 7, 0]
    assert tables.ends.output_tokens.tolist() == [2]
    texts = RequestTexts(tables.arrivals, tables.text)
    assert [texts.read_request_id(row) for row in (0, 1)] == ["chat-a", "chat-b"]
    assert texts.read_external_id(1) == "chat"
    assert parse_anchor(chunk).anchor_realtime_ns == 1_700_000_000_000_000_000

    assert tables.steps.gap_ns.tolist() == [5, 5, 5]
    assert tables.pauses.end_ns.tolist() == [1400]


def test_collectives_and_phases_are_told_and_the_format_before_has_none() -> None:
    current = decode(CURRENT)
    assert current.collectives.step_row.tolist() == [1, 1, 2, 1, 1]
    assert current.collectives.rank.tolist() == [0, 0, 0, 1, 1]
    assert set(current.collectives.group.tolist()) == {derive_group_hash("tp", (0, 1))}
    assert current.collectives.seq.tolist() == [0, 1, 0, 0, 1]
    assert current.collectives.bytes.tolist() == [4096, 4096, 8, 4096, 4096]
    assert current.collectives.start_ns.tolist() == [1100, 1110, int(UNKNOWN), 1100, 1110]
    assert current.collectives.end_ns.tolist() == [1104, 1114, int(UNKNOWN), 1105, 1115]
    assert current.collectives.device_ns.tolist() == [*[int(UNKNOWN)] * 2, 17, *[int(UNKNOWN)] * 2]
    assert current.ranks.wait_ns.tolist() == [int(UNKNOWN), 8, 17, int(UNKNOWN), 10, int(UNKNOWN)]
    assert current.phases.step_row.tolist() == [2]
    assert current.phases.iteration.tolist() == [7]
    assert current.phases.backward_ns.tolist() == [25]
    assert current.phases.data_ns.tolist() == [int(UNKNOWN)]
    before = decode(BEFORE)
    assert (len(before.collectives), len(before.phases)) == (0, 0)


def test_encoder_still_writes_the_committed_bytes() -> None:
    assert encode_chunk(decode(CURRENT), parse_anchor(CURRENT)) == CURRENT


@pytest.mark.parametrize(("version", "revision"), [(1, 1), (2, 0), (255, 255)])
def test_chunk_of_a_newer_format_is_refused_by_name(version: int, revision: int) -> None:
    newer = CURRENT[:4] + struct.pack("<BB", version, revision) + CURRENT[6:]
    assert len(newer) > CHUNK_HEADER.size
    assert ledger.decode_chunks([newer]).refused == [(0, Status.NEWER)]


def test_chunk_older_than_the_format_before_is_refused_by_name() -> None:
    for chunk in (TOO_OLD, CURRENT[:4] + b"\0\2" + CURRENT[6:]):
        assert ledger.decode_chunks([chunk]).refused == [(0, Status.TOO_OLD)]
        assert ledger_twin.decode_chunks([chunk])[2] == [(0, Status.TOO_OLD)]
