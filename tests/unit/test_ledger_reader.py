from pathlib import Path

import numpy as np
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_llmprism.exporters.ledger_chunks import encode_host_chunk
from otel_llmprism.exporters.otlp_logs import LedgerRecord, encode_ledger_records
from otel_llmprism.model.hosts import NO_RANK, HostTables, SampleTable, SeriesTable
from otel_llmprism.native.ledger_layout import ChunkAnchor
from otel_llmprism.native.otlp import MalformedRequestError
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch, LedgerReader, LedgerSource
from otel_llmprism.receivers.ledger_seen import WINDOW, SeenNumbers

CHUNK = (Path(__file__).parent.parent / "golden" / "ledger-0.1.bin").read_bytes()
RESOURCE = {"llmprism.engine.id": "engine", "llmprism.engine.run": "00" * 16, "service.name": "s"}
SOURCE = LedgerSource("engine", "00" * 16, "node-1")


def make_record(seq: int, body: bytes = CHUNK, event: str = "llmprism.ledger") -> LedgerRecord:
    return LedgerRecord(event, body, 0, "node-1", seq, 1, 0, 2)


def make_request(*records: LedgerRecord) -> bytes:
    return encode_ledger_records(RESOURCE, records)


def read(reader: LedgerReader, payload: bytes) -> list[LedgerBatch | HostBatch]:
    return list(reader.read_request(payload))


def lost(counters: Counters, cause: str) -> float:
    return counters.value("llmprism.lost", stage="ledger", cause=cause)


def test_chunks_of_one_request_become_one_batch() -> None:
    (batch,) = read(LedgerReader(Counters()), make_request(make_record(4), make_record(5)))
    assert isinstance(batch, LedgerBatch)
    assert batch.source == SOURCE
    assert batch.chunks.seq.tolist() == [4, 5]
    assert batch.chunks.first_step_row.tolist() == [0, 3]
    assert batch.tables.steps.step.tolist() == [0, 1, 2, 0, 1, 2]
    assert batch.chunks.anchor_monotonic_ns.tolist() == [1000, 1000]


def test_repeats_are_dropped_and_counted() -> None:
    counters = Counters()
    reader = LedgerReader(counters)
    read(reader, make_request(make_record(4)))
    assert read(reader, make_request(make_record(4))) == []
    assert lost(counters, "duplicate") == 1


def test_same_number_of_another_event_node_or_run_is_no_repeat() -> None:
    reader = LedgerReader(Counters())
    read(reader, make_request(make_record(4)))
    other = encode_ledger_records(RESOURCE | {"llmprism.engine.run": "01" * 16}, [make_record(4)])
    assert len(read(reader, other)) == 1
    node = LedgerRecord("llmprism.ledger", CHUNK, 0, "node-2", 4, 1)
    assert len(read(reader, make_request(node))) == 1


def test_bad_chunk_costs_itself_alone() -> None:
    counters = Counters()
    newer = CHUNK[:4] + b"\x01" + CHUNK[5:]
    records = [make_record(0), make_record(1, newer), make_record(2, CHUNK[:-1]), make_record(3)]
    (batch,) = read(LedgerReader(counters), make_request(*records))
    assert batch.chunks.seq.tolist() == [0, 3]
    assert (lost(counters, "chunk_newer"), lost(counters, "chunk_truncated")) == (1, 1)


def test_chunk_whose_texts_do_not_add_up_cannot_shift_those_of_others() -> None:
    counters = Counters()
    # Column 87 (request_id_bytes) is constant: make its base 5 where the texts have 6 bytes.
    header = (87).to_bytes(2, "little") + b"\0\0\0\0\0\0"
    at = CHUNK.index(header) + len(header)
    wrong = CHUNK[:at] + (5).to_bytes(8, "little") + CHUNK[at + 8 :]
    (batch,) = read(LedgerReader(counters), make_request(make_record(0, wrong), make_record(1)))
    assert batch.chunks.seq.tolist() == [1]
    assert lost(counters, "chunk_bad_text") == 1


def test_other_records_are_left_alone_and_odd_ones_in_our_scope_counted() -> None:
    request = ExportLogsServiceRequest()
    request.ParseFromString(make_request(make_record(0), make_record(1), make_record(2)))
    records = request.resource_logs[0].scope_logs[0].log_records
    records[1].body.string_value = "no bytes"
    records[2].attributes[1].value.int_value = -1
    foreign = request.resource_logs[0].scope_logs.add()
    foreign.scope.name = "someone.else"
    foreign.log_records.add().event_name = "llmprism.ledger"
    counters = Counters()
    (batch,) = read(LedgerReader(counters), request.SerializeToString())
    assert batch.chunks.seq.tolist() == [0]
    assert lost(counters, "not_a_ledger_record") == 2


def test_record_without_engine_is_counted_and_bad_framing_raises() -> None:
    counters = Counters()
    reader = LedgerReader(counters)
    assert read(reader, encode_ledger_records({}, [make_record(0)])) == []
    assert lost(counters, "not_a_ledger_record") == 1
    with pytest.raises(MalformedRequestError):
        read(reader, b"\x0a\xff")


def test_host_samples_come_back_exactly() -> None:
    tables = HostTables(
        SeriesTable(
            np.array([0, 77], np.uint32), np.array([NO_RANK, 3], np.uint32), np.array([8, 7], np.uint16)
        ),
        SampleTable(
            np.array([0, 1, 0], np.uint32), np.array([5, 5, 9], np.uint64), np.array([0.5, -1.25, np.inf])
        ),
        np.frombuffer(b"cpu.loadrun.gpu", np.uint8),
    )
    body = encode_host_chunk(tables, ChunkAnchor(0, 0, 1, 2))
    (batch,) = read(LedgerReader(Counters()), make_request(make_record(0, body, "llmprism.host")))
    assert isinstance(batch, HostBatch)
    assert batch.tables.list_names() == ["cpu.load", "run.gpu"]
    assert batch.tables.samples.value.tolist() == [0.5, -1.25, np.inf]
    assert batch.tables.samples.series_row.tolist() == [0, 1, 0]
    assert batch.tables.series.rank.tolist() == [NO_RANK, 3]


def test_numbers_out_of_order_are_new_once_and_gaps_count_when_they_grow_old() -> None:
    seen = SeenNumbers(10)
    assert [seen.add(number) for number in (10, 12, 11, 12, 9, 9, 14)] == [
        True, True, True, False, True, False, True,
    ]  # fmt: skip
    assert seen.missing_count == 0
    assert seen.add(13 + WINDOW + 1)
    assert seen.missing_count == 1
    assert not seen.add(13)
    assert seen.add(16)


def test_number_far_ahead_costs_no_memory() -> None:
    seen = SeenNumbers(0)
    assert seen.add(0)
    assert seen.add(1 << 62)
    assert seen.missing_count == (1 << 62) - WINDOW
    assert len(seen._ahead) == 1
