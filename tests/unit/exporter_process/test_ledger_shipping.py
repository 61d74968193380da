# What the exporter ships of the ledger: too much for a chunk is counted, a backlog leaves in requests that
# a server takes, and an engine that says how many ranks record does not wait for others.
from pathlib import Path

import pytest

from otel_llmprism.exporters.ledger_chunks import ChunkTooLargeError, encode_chunk
from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.instrumentation.step_records import EngineState, StepRecorder
from otel_llmprism.model.signals import Signal
from otel_llmprism.model.steps import Anchor, LedgerTables
from otel_llmprism.native.ring import RingWriter
from otel_llmprism.native.ring_records import Mode
from otel_llmprism.native.run_folder import RunDescription
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.exporter_process import ledger_shipper
from otel_llmprism.service.exporter_process.ledger_shipper import LedgerShipper
from otel_llmprism.service.exporter_process.settings import ExporterSettings
from otel_llmprism.service.exporter_process.wiring import build_loop

RUN = "ab" * 16
ANCHOR = Anchor(1_000_000, 2_000_000)
MIB = 1 << 20


def record_step(ring: RingWriter) -> None:
    steps = StepRecorder(ring, StepKeeper("e", bytes.fromhex(RUN), "none"), Mode.SENTINEL)
    ticket = steps.record_scheduled({"a": 1}, (), EngineState(), 10, 20)
    steps.record_output(ticket, 30)


def make_tables(folder: Path) -> LedgerTables:
    ring = RingWriter.create(folder / "made.ring", slots=64)
    record_step(ring)
    slots = bytes(ring._view[256 : 256 + ring._head * 128])
    ring.close()
    (folder / "made.ring").unlink()
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=0))
    assembler.consume(slots)
    tables = assembler.take(40)
    assert tables is not None
    return tables


def test_steps_that_fit_no_chunk_are_counted_and_the_next_ones_are_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, counters = make_tables(tmp_path), Counters()
    shipper = LedgerShipper(tmp_path, "node", {}, lambda _: None, version="0", counters=counters)
    is_first = iter([True])

    def refuse_first(*arguments: object) -> bytes:
        if next(is_first, False):
            raise ChunkTooLargeError("too many requests run")
        return encode_chunk(*arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(ledger_shipper, "encode_chunk", refuse_first)
    shipper.add_tables(tables, ANCHOR)
    assert shipper.take_request() == (b"", 0)
    assert counters.value(LOST, stage="ledger", cause="chunk_too_large") == 1
    shipper.add_tables(tables, ANCHOR)
    assert shipper.take_request()[1] == 1


def test_a_backlog_leaves_in_requests_that_a_server_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = make_tables(tmp_path)
    kept: list[int] = []
    shipper = LedgerShipper(
        tmp_path, "node", {}, lambda record: kept.append(record.seq), version="0", counters=Counters()
    )
    monkeypatch.setattr(ledger_shipper, "encode_chunk", lambda *_: bytes(MIB))
    for _ in range(5):
        shipper.add_tables(tables, ANCHOR)
    requests = []
    while (request := shipper.take_request())[1]:
        requests.append(request)
    assert [records for _, records in requests] == [2, 2, 1]
    assert all(len(payload) < 3 * MIB for payload, _ in requests)
    assert kept == list(range(5))


@pytest.mark.parametrize(("ranks", "ledger_parcels"), [(0, 1), (1, 0), (None, 0)])
def test_only_ranks_that_record_are_waited_for(
    tmp_path: Path, ranks: int | None, ledger_parcels: int
) -> None:
    description = RunDescription("e", RUN, "", "mini", "0", "m", "chat", "none", 1, 0, ranks=ranks)
    sent: list[Signal] = []
    loop = build_loop(
        tmp_path,
        description,
        {"OTEL_LLMPRISM_LEDGER_DIR": str(tmp_path / "kept")},
        settings=ExporterSettings(),
        counters=Counters(),
        put=lambda parcel: sent.append(parcel.signal),
        read_anchor=lambda: ANCHOR,
    )
    ring = RingWriter.create(tmp_path / "engine.ring", slots=64)
    record_step(ring)
    loop.turn()
    assert sent.count(Signal.LOGS) == ledger_parcels
    ring.close()
    loop.finish(is_engine_gone=True)
    assert Signal.LOGS in sent
