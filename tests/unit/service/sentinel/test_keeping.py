# What leaves the sentinel: which steps become spans, what is appended to spans, what is told of findings.
import errno
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.exporters.finding_logs import encode_events, to_event
from otel_llmprism.exporters.finding_spans import build_finding_spans
from otel_llmprism.model.findings import Evidence, Finding, FindingState, StepRef, Subject
from otel_llmprism.model.ids import derive_step_trace_id
from otel_llmprism.model.signals import Signal
from otel_llmprism.model.work import ScoredTable
from otel_llmprism.native.ring_codes import Kept
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.receipt import Receipt
from otel_llmprism.semconv.delivery import CONSUMED
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.semconv.sentinel import SENTINEL_STATE_ERRORS
from otel_llmprism.service.sentinel.board import SentinelBoard
from otel_llmprism.service.sentinel.enrich_stage import EnrichStage
from otel_llmprism.service.sentinel.finding_state import from_json, to_json
from otel_llmprism.service.sentinel.ledger_queue import LedgerQueue
from otel_llmprism.service.sentinel.model_book import StoredModel
from otel_llmprism.service.sentinel.news import ScoredBatch
from otel_llmprism.service.sentinel.own_mark import MARK, add_mark
from otel_llmprism.service.sentinel.recent_ledger import RecentLedger, measure_tables
from otel_llmprism.service.sentinel.state_files import StateFiles
from otel_llmprism.service.sentinel.step_spans import StepSpans
from otel_llmprism.service.sentinel.verdict_book import RequestAddition, StepVerdict, VerdictBook
from otel_llmprism.service.wiring_stages import EndHere, TakeMarkOff
from otel_llmprism.testing.made_ledger import SOURCE, MadeLedger

NOW_NS = 10**12
FINDING = Finding(
    id="f1", kind="step_regression", subject=Subject("engine", "e"), engine_id=SOURCE.engine_id,
    run=SOURCE.run, state=FindingState.OPEN, occurrence=0, onset_ns=100, opened_ns=200, updated_ns=210,
    closed_ns=None, score=1.0, confidence=0.9, excess_s=2.0, lost_request_s=3.0, summary="slow",
    evidence=(Evidence("cycle", 2.0, 1.0, "s"),), steps=(StepRef(SOURCE.run, 5, "onset"),),
)  # fmt: skip


def score(flagged: list[int], **columns: Any) -> ScoredBatch:
    """Score one chunk: longer than expected in the flagged rows, the later the longer."""
    batch, _ = next(MadeLedger(seconds=0.45).list_batches())
    steps = replace(batch.tables.steps, **columns)
    batch = replace(batch, tables=replace(batch.tables, steps=steps))
    count, flags = len(steps), np.zeros(len(steps), np.uint8)
    flags[flagged] = 1
    expected = steps.cycle_ns - flags * np.arange(count) * 1e5
    scored = ScoredTable(
        steps.step, steps.output_ready_ns, steps.kind, steps.cycle_ns, expected,
        np.log(steps.cycle_ns / expected), np.full(count, 0.05), np.ones(count, np.uint8), flags,
    )  # fmt: skip
    return ScoredBatch(batch, ScoredBatch.read_anchor(batch), np.arange(count), scored)


def list_kept(spans: StepSpans, batch: ScoredBatch) -> list[int]:
    return [
        next(pair.value.int_value for pair in kept.spans[0].attributes if pair.key == "llmprism.step.id")
        for kept in spans.keep_slow(batch, None, NOW_NS)
    ]


def test_slow_steps_become_spans_the_largest_excess_first() -> None:
    counters = Counters()
    assert list_kept(StepSpans(0.2, 1e9, counters), score([3, 9, 20, 30])) == [20, 30]
    assert counters.value(LOST, stage="slow_steps", cause="rate") == 2


def test_a_step_that_the_ledger_says_was_kept_is_left_to_the_exporter() -> None:
    kept = np.zeros_like(score([]).tables.steps.kept)
    kept[9] = Kept.RANDOM
    assert list_kept(StepSpans(5, 1e9, Counters()), score([3, 9], kept=kept)) == [3]


def test_an_engine_that_sends_no_step_spans_gets_none_from_us() -> None:
    none = np.zeros_like(score([]).tables.steps.kept_probability)
    assert list_kept(StepSpans(5, 1e9, Counters()), score([3, 9], kept_probability=none)) == []


def test_spans_beyond_the_byte_budget_are_counted() -> None:
    counters = Counters()
    assert list_kept(StepSpans(5, 10.0, counters), score([3])) == []
    assert counters.value(LOST, stage="slow_steps", cause="byte_budget") == 1


def test_a_step_is_sent_once_also_when_a_finding_names_it() -> None:
    spans = StepSpans(5, 1e9, Counters())
    assert list_kept(spans, score([5])) == [5]
    assert list(spans.keep_finding(FINDING, None, NOW_NS)) == []
    other = replace(FINDING, steps=(StepRef(SOURCE.run, 7, "worst"), StepRef(SOURCE.run, 10**6, "recovery")))
    (kept,) = spans.keep_finding(other, None, NOW_NS)
    values = {pair.key: pair.value for pair in kept.spans[0].attributes}
    assert values["llmprism.step.kept"].string_value == "finding"
    assert values["llmprism.step.expected_s"].double_value > 0


def test_recent_ledgers_are_bounded_in_bytes() -> None:
    batch = score([])
    recent = RecentLedger(3 * measure_tables(batch.tables))
    for _ in range(10):
        recent.add(batch)
    assert len(recent._batches) == 3


def wrap(payload: bytes, signal: Signal = Signal.TRACES) -> Batch:
    return Batch(signal, payload, Receipt(lambda: None), 0)


def build_request(name: str, trace_id: bytes, span_id: bytes, parent: bytes = b"") -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.spans.add(name=name, trace_id=trace_id, span_id=span_id, parent_span_id=parent)
    return request.SerializeToString()


def read_span(payload: bytes) -> Any:
    return ExportTraceServiceRequest.FromString(payload).resource_spans[0].scope_spans[0].spans[0]


@pytest.fixture
def enrich() -> EnrichStage:
    book = VerdictBook()
    book.note_step(b"t" * 16, StepVerdict(0.5, 0.7, is_anomalous=True))
    addition = RequestAddition(3, 0.25, "f1", ((b"x" * 16, b"y" * 8, 42),))
    book.note_request(b"t" * 16, b"r" * 8, addition)
    return EnrichStage(lambda: book, Counters())


def test_our_spans_get_what_is_known_once(enrich: EnrichStage) -> None:
    (once,) = enrich.consume(wrap(build_request("llmprism.step", b"t" * 16, b"s" * 8)))
    (twice,) = enrich.consume(once)
    assert twice.payload == once.payload
    assert {pair.key for pair in read_span(once.payload).attributes} == {
        "llmprism.step.expected_s",
        "llmprism.step.residual",
        "llmprism.step.anomalous",
    }


def test_an_ended_request_is_told_of_its_slow_steps_and_its_finding(enrich: EnrichStage) -> None:
    (batch,) = enrich.consume(wrap(build_request("llmprism.request", b"t" * 16, b"r" * 8)))
    assert {pair.key for pair in read_span(batch.payload).attributes} == {
        "llmprism.request.slow_steps",
        "llmprism.request.unexplained_s",
        "llmprism.finding.id",
    }


def test_a_decode_span_links_to_the_slow_steps_that_are_kept(enrich: EnrichStage) -> None:
    payload = build_request("llmprism.request.decode", b"t" * 16, b"d" * 8, parent=b"r" * 8)
    (batch,) = enrich.consume(wrap(payload))
    (link,) = read_span(batch.payload).links
    assert (link.trace_id, link.span_id) == (b"x" * 16, b"y" * 8)


@pytest.mark.parametrize("name", ["llm_request", "llmprism.rank", "llmprism.step.other"])
def test_spans_of_others_are_never_touched(enrich: EnrichStage, name: str) -> None:
    batch = wrap(build_request(name, b"t" * 16, b"r" * 8))
    assert list(enrich.consume(batch)) == [batch]


def test_beside_only_what_we_made_goes_on_and_without_the_mark() -> None:
    counters = Counters()
    stage, own = EndHere(counters), build_request("llmprism.finding", b"t" * 16, b"r" * 8)
    assert list(stage.consume(wrap(own))) == []  # it came back over the network: not ours any more
    (batch,) = stage.consume(wrap(add_mark(own)))
    assert batch.payload == own
    assert counters.value(CONSUMED, signal="traces") == 1


def test_inline_takes_the_mark_off_and_nothing_else() -> None:
    own = build_request("llmprism.finding", b"t" * 16, b"r" * 8)
    for payload in (own, own + MARK):
        (batch,) = TakeMarkOff().consume(wrap(payload))
        assert batch.payload == own
    assert ExportTraceServiceRequest.FromString(add_mark(own)).resource_spans


def test_a_full_queue_loses_and_counts_and_never_waits() -> None:
    counters = Counters()
    queue = LedgerQueue(1, counters)
    batch = score([]).batch
    queue.put(batch, 1)
    queue.put(batch, 2)
    assert counters.value(LOST, stage="sentinel", cause="queue_full") == len(batch.tables.steps)
    taken = queue.take(0)
    assert taken is not None
    assert taken.arrived_ns == 1
    queue.close()
    queue.put(batch, 3)
    assert counters.value(LOST, stage="sentinel", cause="shutdown") == len(batch.tables.steps)


def test_opening_and_closing_are_two_spans_of_one_trace() -> None:
    (opened,) = build_finding_spans(FINDING)
    closed_finding = replace(FINDING, state=FindingState.CLOSED, closed_ns=900)
    (closed,) = build_finding_spans(closed_finding)
    assert opened.trace_id == closed.trace_id
    assert opened.span_id != closed.span_id
    assert closed.links[0].span_id == opened.span_id
    assert (opened.start_time_unix_nano, opened.end_time_unix_nano) == (100, 200)
    assert (closed.start_time_unix_nano, closed.end_time_unix_nano) == (100, 900)
    step_trace = derive_step_trace_id(SOURCE.engine_id, bytes.fromhex(SOURCE.run), 5)
    assert opened.links[0].trace_id == step_trace
    assert list(build_finding_spans(replace(FINDING, state=FindingState.UPDATED))) == []


def test_a_reopened_finding_has_new_spans_in_the_same_trace() -> None:
    (first,), (again,) = build_finding_spans(FINDING), build_finding_spans(replace(FINDING, occurrence=1))
    assert first.trace_id == again.trace_id
    assert first.span_id != again.span_id


def test_every_state_is_an_event_with_the_sentence_as_its_body() -> None:
    raw = encode_events({"a": "b"}, [to_event(replace(FINDING, state=state)) for state in FindingState])
    assert raw.count(b"slow") >= len(FindingState)


def test_findings_survive_as_json() -> None:
    assert from_json(to_json(FINDING)) == FINDING
    for broken in ({}, {**to_json(FINDING), "state": "no"}, {**to_json(FINDING), "further": 1}):
        with pytest.raises(ValueError, match="no finding"):
            from_json(broken)


STORED = StoredModel("engine/1", "peers", 500, b"model", b"reference")


def test_files_are_private_and_come_back(tmp_path: Path) -> None:
    files = StateFiles(tmp_path / "sentinel", Counters())
    files.save_model(STORED)
    files.save_state({"a": [1, float("inf")]})
    assert list(files.load_models()) == [STORED]
    assert files.load_state() == {"a": [1, float("inf")]}
    written = [path for path in (tmp_path / "sentinel").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}


@pytest.mark.parametrize("seed", range(20))
def test_damaged_files_are_refused_and_counted(tmp_path: Path, seed: int) -> None:
    random, counters = np.random.default_rng(seed), Counters()
    files = StateFiles(tmp_path, counters)
    files.save_state({"some": "state"})
    raw = bytearray((tmp_path / "state").read_bytes())
    raw[int(random.integers(0, len(raw)))] ^= int(random.integers(1, 255))
    (tmp_path / "state").write_bytes(raw[: len(raw) - seed % 3])
    assert files.load_state() in ({}, {"some": "state"})
    if files.load_state() == {}:
        assert counters.value(SENTINEL_STATE_ERRORS, operation="load", cause="damaged") >= 1


def test_a_full_disk_is_counted_and_what_was_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = Counters()
    files = StateFiles(tmp_path, counters)
    files.save_state({"first": 1})

    def refuse(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("otel_llmprism.service.sentinel.state_files.os.fsync", refuse)
    files.save_state({"second": 2})
    assert files.load_state() == {"first": 1}
    assert counters.value(SENTINEL_STATE_ERRORS, operation="save", cause="No space left on device") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_without_a_folder_nothing_is_kept() -> None:
    files = StateFiles(None, Counters())
    files.save_state({"a": 1})
    files.save_model(STORED)
    assert files.load_state() == {}
    assert list(files.load_models()) == []


def test_what_people_decide_is_noted_at_once_and_handed_on() -> None:
    orders: list[Any] = []
    board = SentinelBoard(orders.append)
    board.findings.note([FINDING])
    assert board.silence("f1", 500)
    assert board.findings.is_silenced(replace(FINDING, id="f2"), 499)
    assert not board.findings.is_silenced(FINDING, 500)
    assert not board.findings.is_silenced(replace(FINDING, kind="overload"), 499)
    assert board.dismiss("f1")
    assert not board.dismiss("nobody")
    assert [order[0] for order in orders] == ["silence", "dismiss"]
