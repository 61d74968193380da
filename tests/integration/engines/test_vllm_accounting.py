# Every token, request and step of a real vLLM under pressure, as our ledger and spans tell them, held exactly
# against a book that its scheduler's own process kept without our code.
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.model.member_sums import sum_request_tokens, sum_step_tokens
from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.native.ring_records import Finish
from otel_llmprism.service.ledger_history import LedgerHistory, StepBounds
from otel_llmprism.testing.engine_load import LoadPlan, build_asks
from otel_llmprism.testing.engine_server import BATCH_256
from otel_llmprism.testing.engine_token_book import ABORTED, LENGTH, STOPPED, TokenBook

CANARY = "canaryprompt8f14e45f"
ASKS = 600  # some are cancelled before the scheduler hears of them
# Short ones fill the batch, long ones are cut into chunks; growing, they run out of room together.
SHORT = LoadPlan(
    ASKS * 2 // 3,
    seed=1,
    prompt_words=(4, 10),
    max_tokens=(120, 160),
    cancelled=0.15,
    can_end_early=0.1,
    unsampled=0.1,
    canary=CANARY,
)
LONG = LoadPlan(
    ASKS // 3,
    seed=2,
    prompt_words=(60, 180),
    max_tokens=(1, 64),
    cancelled=0.25,
    shares_prefix=0.5,
    unsampled=0.1,
    canary=CANARY,
)
GENERATED = re.compile(rb"\bw\d{1,3} w\d{1,3}\b")  # two words of the model's vocabulary


@dataclass(repr=False)
class Run:
    """One server's life under the load."""

    case: Any
    book: TokenBook
    shared_memory: bytes  # rings and all, when the load was over


def run_load(engines: Any, environment: dict[str, str]) -> Run:
    case = engines.serve(BATCH_256, environment)
    case.send([*build_asks(SHORT, "short"), *build_asks(LONG, "long")], concurrency=300)
    shared_memory = read_files(case.server.runtime)
    case.finish()
    return Run(case, case.read_book(), shared_memory)


@pytest.fixture(scope="module")
def default_run(engines: Any) -> Run:
    return run_load(engines, {"OTEL_LLMPRISM_JOB_ID": "default"})


@pytest.fixture(scope="module")
def all_steps_run(engines: Any) -> Run:
    return run_load(engines, {"OTEL_LLMPRISM_STEPS": "all"})


def read_files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def read_node_ledger(folder: Path) -> Iterator[LedgerTables]:
    """Yield what the node kept, decoded: on the disk its texts are packed."""
    history = LedgerHistory(folder)
    for batch in history.read_batches(StepBounds()):
        yield batch.tables
    assert not history.problems


def read_attributes(item: Any) -> dict[str, Any]:
    values = {a.key: (a.value.WhichOneof("value"), a.value) for a in item.attributes}
    return {key: getattr(value, kind) for key, (kind, value) in values.items() if kind}


def name_handles(chunks: Sequence[LedgerTables]) -> dict[int, str]:
    names: dict[int, str] = {}
    for tables in chunks:
        texts = RequestTexts(tables.arrivals, tables.text)
        for row, handle in enumerate(tables.arrivals.handle.tolist()):
            assert handle not in names, "a request arrived twice"
            names[handle] = texts.read_request_id(row)
    return names


def check_pressure(book: TokenBook) -> None:
    """The load is only worth something if all of this happened."""
    assert len(book.ends) >= 500
    assert book.list_ended(ABORTED)
    assert book.list_ended(STOPPED)
    assert sum(book.preemptions.values()) >= 5
    assert sum(book.cached.values()) > 0
    assert max(len(step) for step in book.steps) > 128  # what a sampled step links at most
    chunked = [request for step in book.steps for request, tokens in step.items() if tokens > 1]
    assert max(Counter(chunked).values()) > 1


def test_the_book_agrees_with_arithmetic_and_with_the_client(default_run: Run) -> None:
    """The oracle is tested first: two ways to count that know nothing of each other."""
    book, answers = default_run.book, default_run.case.answers
    check_pressure(book)
    assert all(len(ends) == 1 for ends in book.ends.values())
    for request in book.list_ended(LENGTH):
        assert book.tokens[request] == book.predict_tokens(request)
    generated = {name_ask(request): ends[0].generated for request, ends in book.ends.items()}
    whole = [answer for answer in answers if answer.finish in {"length", "stop"} and answer.generated]
    assert len(whole) > ASKS // 2
    assert all(generated[answer.name] == answer.generated for answer in whole)


def name_ask(request: str) -> str:
    """Return the ask of an engine's request id: `cmpl-NAME-0-RANDOM`."""
    return request.removeprefix("cmpl-").rsplit("-", 2)[0]


def test_ledger_has_every_token_of_every_request(default_run: Run) -> None:
    chunks = default_run.case.read_ledger()
    names = name_handles(chunks)
    tokens: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    for tables in chunks:
        sums = sum_request_tokens(tables.steps.lane, tables.members, tables.running)
        for row, handle in enumerate(sums.handle.tolist()):
            tokens[names[handle]] += int(sums.prefill_tokens[row]) + int(sums.decode_tokens[row])
            steps[names[handle]] += int(sums.steps[row])
    assert +tokens == default_run.book.tokens
    assert +steps == default_run.book.steps_of
    lengths = default_run.book.list_ended(LENGTH)
    assert {name: tokens[name] for name in lengths} == {
        name: default_run.book.predict_tokens(name) for name in lengths
    }


def test_ledger_has_every_step_once(default_run: Run) -> None:
    found: list[tuple[int, int, int]] = []
    for tables in default_run.case.read_ledger():
        steps = tables.steps
        sums = sum_step_tokens(steps.lane, tables.members, tables.running)
        totals = steps.prefill_tokens.astype(int) + steps.decode_tokens.astype(int)
        assert sums.requests.tolist() == steps.requests.tolist()
        assert (sums.prefill_tokens + sums.decode_tokens).tolist() == totals.tolist()
        found += zip(steps.step.tolist(), steps.requests.tolist(), totals.tolist(), strict=True)
    booked = [(number, len(step), sum(step.values())) for number, step in enumerate(default_run.book.steps)]
    assert found == booked


def test_ledger_has_every_request_and_its_end_once(default_run: Run) -> None:
    chunks, book = default_run.case.read_ledger(), default_run.book
    names = name_handles(chunks)
    assert Counter(names.values()) == Counter(dict.fromkeys(book.ends, 1))
    finishes = {LENGTH: Finish.LENGTH, ABORTED: Finish.ABORT, STOPPED: Finish.STOP}
    told = [
        (names[handle], *numbers)
        for tables in chunks
        for handle, *numbers in zip(
            tables.ends.handle.tolist(),
            tables.ends.prompt_tokens.tolist(),
            tables.ends.output_tokens.tolist(),
            tables.ends.preemptions.tolist(),
            tables.ends.finish.tolist(),
            strict=True,
        )
    ]
    booked = [
        (request, end.prompt, end.generated, end.preemptions, finishes[end.status])
        for request, (end,) in book.ends.items()
    ]
    assert sorted(told) == sorted(booked)
    cached = {
        names[handle]: count
        for tables in chunks
        for handle, count in zip(tables.ends.handle.tolist(), tables.ends.cached_tokens.tolist(), strict=True)
    }
    assert {name: cached[name] for name in book.cached} == book.cached


def test_all_steps_as_spans_carry_every_token_in_their_links(all_steps_run: Run) -> None:
    case, book = all_steps_run.case, all_steps_run.book
    check_pressure(book)
    sampled = {ask.name for ask in build_all_asks() if ask.traceparent.endswith("-01")}
    requests = {(span.trace_id, span.span_id): span for span in case.list_spans("llmprism.request")}
    known = {read_attributes(span)["llmprism.request.id"] for span in requests.values()}
    assert len(known) == len(case.list_spans("llmprism.request"))
    assert known == {request for request in book.ends if name_ask(request) in sampled}
    steps = {read_attributes(step)["llmprism.step.id"]: step for step in case.list_spans("llmprism.step")}
    assert len(steps) == len(case.list_spans("llmprism.step"))
    assert sorted(steps) == list(range(len(book.steps)))
    for number, step in steps.items():
        linked: Counter[str] = Counter()
        for link in step.links:
            attributes = read_attributes(link)
            target = read_attributes(requests[link.trace_id, link.span_id])
            assert target["llmprism.request.id"] == attributes["llmprism.request.id"]
            linked[attributes["llmprism.request.id"]] += attributes["llmprism.request.tokens"]
        booked = {name: tokens for name, tokens in book.steps[number].items() if name in known}
        assert linked == booked, f"step {number}"
        attributes = read_attributes(step)
        assert attributes["llmprism.step.requests"] == len(book.steps[number])


def build_all_asks() -> list[Any]:
    return [*build_asks(SHORT, "short"), *build_asks(LONG, "long")]


def test_requests_are_spans_below_their_callers(all_steps_run: Run) -> None:
    contexts = {ask.name: ask.traceparent.split("-") for ask in build_all_asks()}
    for span in all_steps_run.case.list_spans("llmprism.request"):
        _, trace_id, parent, _ = contexts[name_ask(read_attributes(span)["llmprism.request.id"])]
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace_id, parent)


def test_neither_prompts_nor_completions_are_recorded(default_run: Run, all_steps_run: Run) -> None:
    for run in (default_run, all_steps_run):
        case = run.case
        ledger = b"\n".join(tables.text.tobytes() for tables in read_node_ledger(case.server.ledger))
        places = {
            "shared memory": run.shared_memory,
            "the texts of the ledger on the node": ledger,
            "what was sent": b"\n".join(one.payload for one in case.backend.received()),
        }
        for place, content in places.items():
            assert b"cmpl-short-1-0" in content, f"{place}: nothing was tested"
            assert CANARY.encode() not in content, f"{place} holds a prompt"
            assert not GENERATED.search(content), f"{place} holds words of the model"
        assert CANARY not in case.log
