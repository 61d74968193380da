# Requests and steps of the past, out of a kept ledger: the same rules and spans as when they were fresh.
from pathlib import Path

from otel_llmprism.exporters.ledger_chunks import encode_chunk
from otel_llmprism.exporters.ledger_files import LedgerFiles, LedgerFilesConfig
from otel_llmprism.exporters.otlp_logs import LedgerRecord
from otel_llmprism.exporters.request_spans import RequestTexts
from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ledger_frames import SegmentOwner
from otel_llmprism.native.ledger_layout import ChunkAnchor
from otel_llmprism.native.ring_records import Finish, RequestEvent, StepKind, derive_request_handle
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerSource
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig
from otel_llmprism.service.ledger_history import LedgerHistory
from otel_llmprism.service.ledger_traces import build_past_request, build_past_step

MS = 1_000_000
HANDLE = derive_request_handle("r")
SOURCE = LedgerSource("engine", "ab" * 16, "node")
TEXTS = RequestTexts("chat", "vllm", "m")


def keep_chunks(folder: Path, *chunks: bytes, ranks: int = 0) -> LedgerHistory:
    """Keep one ledger record for each drain of slots."""
    owner = SegmentOwner(SOURCE.engine_id, SOURCE.run, SOURCE.node, {}, {})
    files = LedgerFiles(LedgerFilesConfig(folder, 1 << 20), owner, Counters())
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=ranks))
    for seq, slots in enumerate(chunks):
        assembler.consume(slots)
        tables = assembler.take(0)
        assert tables is not None
        body = encode_chunk(tables, ChunkAnchor(0, 0, 0, 0))
        assert files.append(LedgerRecord("llmprism.ledger", body, 1, "node", seq, 0, 0, 0))
    files.close()
    return LedgerHistory(folder)


def arrive(at_ms: int) -> bytes:
    return records.pack_request_arrived(HANDLE, at_ms * MS, b"T" * 16, b"S" * 8, bytes(8), "r", sampled=True)


def tell(event: RequestEvent, at_ms: int, tokens: int = 0) -> bytes:
    return records.pack_request_event(HANDLE, at_ms * MS, event, tokens=tokens)


def test_the_front_ends_word_counts_also_when_it_lies_before_the_arrival(tmp_path: Path) -> None:
    history = keep_chunks(
        tmp_path,
        tell(RequestEvent.FIRST_TOKEN, 20),
        arrive(5) + tell(RequestEvent.SCHEDULED, 10),
        tell(RequestEvent.PREEMPTED, 30, 9) + tell(RequestEvent.RESUMED, 35, 2),
        tell(RequestEvent.RESPONDED, 60, Finish.LENGTH),
        records.pack_request_ended(HANDLE, 50 * MS, 8, 6, 0, 6, 1, Finish.ABORT),
    )
    request, _, prefill, decode = build_past_request(history, SOURCE, "r", TEXTS)
    attributes = {item.key: item.value for item in request.attributes}
    assert (request.start_time_unix_nano, request.end_time_unix_nano) == (5 * MS, 60 * MS)
    assert prefill.end_time_unix_nano == 20 * MS
    assert attributes["gen_ai.usage.output_tokens"].int_value == 6
    (reason,) = attributes["gen_ai.response.finish_reasons"].array_value.values
    assert reason.string_value == "length"
    assert attributes["llmprism.request.recomputed_tokens"].int_value == 7
    assert [event.name for event in decode.events] == [
        "llmprism.request.preempted",
        "llmprism.request.resumed",
    ]
    assert history.problems == []


def test_an_id_that_came_twice_is_its_later_request(tmp_path: Path) -> None:
    history = keep_chunks(
        tmp_path,
        arrive(0) + tell(RequestEvent.FIRST_TOKEN, 3),
        records.pack_request_ended(HANDLE, 10 * MS, 8, 1, 0, 1, 0, Finish.STOP),
        arrive(20) + tell(RequestEvent.FIRST_TOKEN, 24),
        records.pack_request_ended(HANDLE, 30 * MS, 8, 2, 0, 2, 0, Finish.LENGTH),
    )
    request = build_past_request(history, SOURCE, "r", TEXTS)[0]
    attributes = {item.key: item.value for item in request.attributes}
    assert (request.start_time_unix_nano, request.end_time_unix_nano) == (20 * MS, 30 * MS)
    assert attributes["llmprism.request.ttft_s"].double_value == 0.004
    assert attributes["gen_ai.usage.output_tokens"].int_value == 2


def test_a_step_of_the_past_has_its_collectives_and_phases(tmp_path: Path) -> None:
    slots = records.pack_collective(0, 0, 9, 0, 1, 64, 12 * MS, 13 * MS)
    slots += records.pack_step_phases(0, 0, 70, forward_ns=5 * MS, micro_batches=2)
    slots += records.pack_step_rank(0, 0, 10 * MS, 20 * MS)
    slots += records.pack_step_scheduled(
        0, 10 * MS, 10 * MS, StepKind.TRAIN, 0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, 1
    )
    slots += records.pack_step_output(0, 20 * MS, *[records.UNKNOWN_NS] * 3)
    root, rank, collective = build_past_step(keep_chunks(tmp_path, slots, ranks=1), SOURCE, 0)
    told = {item.key: item.value for span in (root, rank, collective) for item in span.attributes}
    assert told["llmprism.step.iteration"].int_value == 70
    assert told["llmprism.rank.forward_s"].double_value == 0.005
    assert told["llmprism.collective.op"].string_value == "all_reduce"
    assert collective.parent_span_id == rank.span_id
