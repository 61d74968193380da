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
from otel_llmprism.receivers.ledger_tables import wrap_columns

HERE = Path(__file__).parent
CURRENT = (HERE / "ledger-0.1.bin").read_bytes()
BEFORE = (HERE / "ledger-0.0.bin").read_bytes()


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


def test_what_the_format_before_did_not_know_takes_its_default() -> None:
    assert decode(CURRENT).steps.gap_ns.tolist() == [5, 5, 5]
    assert decode(CURRENT).pauses.end_ns.tolist() == [1400]
    before = decode(BEFORE)
    assert before.steps.gap_ns.tolist() == [int(UNKNOWN)] * 3
    assert before.steps.lane.tolist() == [0, 0, 0]
    assert len(before.pauses) == 0


def test_encoder_still_writes_the_committed_bytes() -> None:
    assert encode_chunk(decode(CURRENT), parse_anchor(CURRENT)) == CURRENT


@pytest.mark.parametrize(("version", "revision"), [(1, 0), (0, 2), (255, 255)])
def test_chunk_of_a_newer_format_is_refused_by_name(version: int, revision: int) -> None:
    newer = CURRENT[:4] + struct.pack("<BB", version, revision) + CURRENT[6:]
    assert len(newer) > CHUNK_HEADER.size
    assert ledger.decode_chunks([newer]).refused == [(0, Status.NEWER)]
