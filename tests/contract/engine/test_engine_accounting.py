# The engine's own book is the oracle: what the ledger and the spans say of requests and steps must equal
# it exactly.
from collections import Counter
from typing import Any

import pytest

from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.model.member_sums import sum_request_tokens
from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.native.ledger import decode_chunks
from otel_llmprism.receivers.ledger_tables import wrap_columns

# Little room and many cancels: preemption, chunked prefill and aborts all happen.
TIGHT = (
    *("--requests", "520", "--rate", "400", "--cancel", "0.15", "--prompt", "96", "--output", "24"),
    *("--kv-blocks", "80", "--token-budget", "64", "--max-batch", "24", "--width", "32", "--layers", "1"),
)


def read_ledger(case: Any) -> list[LedgerTables]:
    records = case.list_log_records("llmprism.ledger")
    decoded = [decode_chunks([record.body.bytes_value]) for record in records]
    assert all(not chunk.refused for chunk in decoded)
    return [wrap_columns(chunk.columns) for chunk in decoded]


def sum_book(book: list[dict[str, Any]]) -> tuple[Counter[str], Counter[str]]:
    prefill: Counter[str] = Counter()
    decode: Counter[str] = Counter()
    for line in book:
        for request, tokens in line.get("tokens", {}).items():
            (prefill if request in line["prefill"] else decode)[request] += tokens
    return prefill, decode


def sum_ledger(chunks: list[LedgerTables]) -> tuple[Counter[str], Counter[str]]:
    names: dict[int, str] = {}
    prefill: Counter[str] = Counter()
    decode: Counter[str] = Counter()
    for tables in chunks:
        texts = RequestTexts(tables.arrivals, tables.text)
        names |= {h: texts.read_request_id(row) for row, h in enumerate(tables.arrivals.handle.tolist())}
    for tables in chunks:
        sums = sum_request_tokens(tables.steps.lane, tables.members, tables.running)
        for row, handle in enumerate(sums.handle.tolist()):
            prefill[names[handle]] += int(sums.prefill_tokens[row])
            decode[names[handle]] += int(sums.decode_tokens[row])
    return +prefill, +decode


@pytest.fixture
def tight_case(start_engine: Any) -> Any:
    case = start_engine(*TIGHT)
    case.wait_for_end()
    return case


def test_ledger_tokens_equal_the_engines_book_for_every_request(tight_case: Any) -> None:
    book = tight_case.read_book()
    ended = {line["request"]: line for line in book if line.get("event") == "ended"}
    assert len(ended) == 520
    # The load is only worth something if all of this happened.
    assert {line["finish"] for line in ended.values()} == {"length", "abort"}
    assert sum(line["preemptions"] for line in ended.values()) > 5
    assert any(len(line.get("prefill", ())) and sum(line["tokens"].values()) == 64 for line in book)

    chunks = read_ledger(tight_case)
    assert sum_ledger(chunks) == sum_book(book)

    steps = [step for tables in chunks for step in tables.steps.step.tolist()]
    assert steps == list(range(tight_case.summary["steps"]))

    told: dict[int, str] = {}
    for tables in chunks:
        texts = RequestTexts(tables.arrivals, tables.text)
        told |= {h: texts.read_request_id(row) for row, h in enumerate(tables.arrivals.handle.tolist())}
    ends = Counter(told[handle] for tables in chunks for handle in tables.ends.handle.tolist())
    assert ends == Counter(dict.fromkeys(ended, 1))


def test_every_sampled_request_is_one_span_below_its_caller(tight_case: Any) -> None:
    ended = {line["request"]: line for line in tight_case.read_book() if line.get("event") == "ended"}
    callers = {span.span_id: span for span in tight_case.list_spans("text_completion mini")}
    spans = {read_attributes(s)["llmprism.request.id"]: s for s in tight_case.list_spans("llmprism.request")}
    assert len(tight_case.list_spans("llmprism.request")) == 520
    assert spans.keys() == ended.keys()
    for name, span in spans.items():
        attributes = read_attributes(span)
        assert callers[span.parent_span_id].trace_id == span.trace_id
        assert attributes["llmprism.request.steps"] == ended[name]["steps"]
        assert attributes["gen_ai.usage.output_tokens"] == ended[name]["output"]
        assert attributes["gen_ai.response.finish_reasons"] == [ended[name]["finish"]]
        assert span.kind == span.SPAN_KIND_SERVER


def test_all_steps_as_spans_carry_every_token_in_their_links(start_engine: Any) -> None:
    case = start_engine(*TIGHT, OTEL_LLMPRISM_STEPS="all")
    case.wait_for_end()
    prefill: Counter[str] = Counter()
    decode: Counter[str] = Counter()
    steps = case.list_spans("llmprism.step")
    requests = {(s.trace_id, s.span_id): s for s in case.list_spans("llmprism.request")}
    for step in steps:
        for link in step.links:
            attributes = read_attributes(link)
            target = requests[link.trace_id, link.span_id]
            assert read_attributes(target)["llmprism.request.id"] == attributes["llmprism.request.id"]
            phase = prefill if attributes["llmprism.request.phase"] == "prefill" else decode
            phase[attributes["llmprism.request.id"]] += attributes["llmprism.request.tokens"]
    assert (prefill, decode) == sum_book(case.read_book())

    summary = case.summary
    ids = sorted(read_attributes(step)["llmprism.step.id"] for step in steps)
    assert ids == list(range(summary["steps"]))
    for step in steps:
        number = read_attributes(step)["llmprism.step.id"]
        trace_id = derive_step_trace_id(summary["engine"], bytes.fromhex(summary["run"]), number)
        assert (step.trace_id, step.span_id) == (trace_id, derive_span_id(trace_id, "llmprism.step"))
        assert not step.parent_span_id

    known = {(step.trace_id, step.span_id) for step in steps}
    decodes = case.list_spans("llmprism.request.decode")
    assert any(span.links for span in decodes)
    for span in decodes:
        assert len(span.links) <= 16
        assert {(link.trace_id, link.span_id) for link in span.links} <= known


def test_two_ranks_are_children_of_every_kept_step(start_engine: Any) -> None:
    case = start_engine("--requests", "30", "--rate", "60", "--ranks", "2", OTEL_LLMPRISM_STEPS="all")
    case.wait_for_end()
    ranks = case.list_spans("llmprism.rank")
    steps = {step.span_id: step for step in case.list_spans("llmprism.step")}
    assert len(ranks) == 2 * len(steps)
    by_step = Counter((span.parent_span_id, read_attributes(span)["llmprism.rank.tp"]) for span in ranks)
    assert set(by_step) == {(span_id, rank) for span_id in steps for rank in (0, 1)}
    for span in ranks:
        rank = read_attributes(span)["llmprism.rank.global"]
        assert span.trace_id == steps[span.parent_span_id].trace_id
        assert span.span_id == derive_span_id(span.trace_id, "llmprism.rank", rank)
        assert 0 <= read_attributes(span)["llmprism.rank.wait_s"] <= 10


def test_unsampled_requests_are_in_ledger_and_metrics_only(start_engine: Any) -> None:
    case = start_engine("--requests", "20", "--rate", "100", "--sampled", "0", OTEL_LLMPRISM_STEPS="all")
    case.wait_for_end()
    assert case.list_spans("llmprism.request") == []
    assert all(not step.links for step in case.list_spans("llmprism.step"))
    assert sum(len(tables.ends) for tables in read_ledger(case)) == 20
    (duration,) = case.list_metrics()["gen_ai.server.request.duration"].histogram.data_points
    assert duration.count == 20
    assert not duration.exemplars
    hook_time = case.list_metrics()["llmprism.hook.time"]
    (point,) = hook_time.sum.data_points
    assert (hook_time.unit, hook_time.sum.is_monotonic) == ("s", True)
    assert 0 < point.as_double < 10


def read_attributes(holder: Any) -> dict[str, Any]:
    """Return a span's or link's attributes as plain values."""
    values: dict[str, Any] = {}
    for item in holder.attributes:
        kind = item.value.WhichOneof("value")
        value = getattr(item.value, kind)
        values[item.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return values
