# A real vLLM that starts asleep, asked and switched while it serves, by the command that a person on its
# node uses: status, sentinel, deep-dive, off. What is recorded in between is held against vLLM's own book.
from collections import Counter
from typing import Any

import pytest

from otel_llmprism.model.member_sums import sum_request_tokens
from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.native.ring_records import Mode
from otel_llmprism.testing.engine_busy import (
    PATIENCE_S,
    REQUEST,
    await_requests,
    control,
    keep_busy,
    list_traces,
    send_whole,
)
from otel_llmprism.testing.engine_server import PLAIN, ServerShape
from otel_llmprism.testing.programs import wait_until

ASLEEP = ServerShape("asleep", PLAIN.arguments, PLAIN.environment)
PROCESSES = 3  # front end, engine core, worker
DEEP_STEPS = 7
STEP = "llmprism.step"


@pytest.fixture(scope="module")
def asleep(engines: Any) -> Any:
    return engines.serve(ASLEEP, {"OTEL_LLMPRISM_MODE": "off"})


def order(case: Any, *words: str) -> list[dict[str, Any]]:
    """Command the engine by the process that was started; all of its processes must do it."""
    answers = control(case.server.program.pid, *words)
    assert len(answers) == PROCESSES
    assert all(answer["ok"] for answer in answers), answers
    return answers


def list_modes(case: Any) -> list[str]:
    return [answer["mode"] for answer in order(case, "status")]


def read_attribute(span: Any, name: str) -> Any:
    for item in span.attributes:
        if item.key == name:
            return getattr(item.value, item.value.WhichOneof("value"))
    return None


def list_deep(case: Any) -> list[int]:
    """Return the ids of the steps that were kept as deep."""
    deep = [s for s in case.list_spans(STEP) if read_attribute(s, "llmprism.step.kept") == "deep"]
    return sorted(read_attribute(span, "llmprism.step.id") for span in deep)


def count_tokens(case: Any, prefix: str) -> Counter[str]:
    """Return the tokens that the ledger has of each request of a load."""
    names: dict[int, str] = {}
    tokens: Counter[str] = Counter()
    for tables in case.read_ledger():
        texts = RequestTexts(tables.arrivals, tables.text)
        names |= {
            handle: texts.read_request_id(row) for row, handle in enumerate(tables.arrivals.handle.tolist())
        }
        sums = sum_request_tokens(tables.steps.lane, tables.members, tables.running)
        for row, handle in enumerate(sums.handle.tolist()):
            tokens[names.get(handle, "")] += int(sums.prefill_tokens[row]) + int(sums.decode_tokens[row])
    return Counter({name: count for name, count in tokens.items() if name.startswith(f"cmpl-{prefix}-")})


def count_steps(case: Any) -> int:
    return sum(len(tables.steps) for tables in case.read_ledger())


def test_an_engine_that_starts_asleep_says_so_and_records_nothing(asleep: Any) -> None:
    send_whole(asleep, "asleep")
    said = order(asleep, "status")
    assert [answer["mode"] for answer in said] == ["off"] * PROCESSES
    assert not [answer for answer in said if "run" in answer]
    assert asleep.server.list_exporters() == []
    assert asleep.list_spans(REQUEST) == asleep.list_spans(STEP) == asleep.read_ledger() == []


def test_sentinel_wakes_it_under_load_and_what_comes_after_is_whole(asleep: Any) -> None:
    with keep_busy(asleep, "waking"):
        order(asleep, "sentinel")
    assert list_modes(asleep) == ["sentinel"] * PROCESSES
    assert len(asleep.server.list_exporters()) == 1
    await_requests(asleep, send_whole(asleep, "woken"))
    book = asleep.read_book().tokens
    booked = Counter({name: count for name, count in book.items() if name.startswith("cmpl-woken-")})
    assert booked
    wait_until(
        lambda: count_tokens(asleep, "woken").total() >= booked.total(), "tokens are missing", PATIENCE_S
    )
    assert count_tokens(asleep, "woken") == booked
    assert list_deep(asleep) == []


def test_a_deep_dive_keeps_exactly_the_next_whole_steps(asleep: Any) -> None:
    with keep_busy(asleep, "deep"):
        order(asleep, "deep-dive", "--steps", str(DEEP_STEPS))
        wait_until(lambda: len(list_deep(asleep)) >= DEEP_STEPS, "deep steps are missing", PATIENCE_S)
    await_requests(asleep, send_whole(asleep, "after-deep"))
    deep = list_deep(asleep)
    assert deep == list(range(deep[0], deep[0] + DEEP_STEPS))
    spans = [s for s in asleep.list_spans(STEP) if read_attribute(s, "llmprism.step.id") in deep]
    assert all(len(span.links) == read_attribute(span, "llmprism.step.requests") > 0 for span in spans)
    ranks = Counter(span.parent_span_id for span in asleep.list_spans("llmprism.rank"))
    assert [ranks[span.span_id] for span in spans] == [1] * DEEP_STEPS
    rows = [
        row
        for tables in asleep.read_ledger()
        for row in zip(tables.steps.step.tolist(), tables.steps.mode.tolist(), strict=True)
    ]
    assert [step for step, mode in rows if mode == Mode.DEEP] == deep
    assert list_modes(asleep) == ["sentinel"] * PROCESSES


def test_off_stops_it_and_the_engine_ends_in_order(asleep: Any) -> None:
    with keep_busy(asleep, "stopping"):
        order(asleep, "off")
    assert list_modes(asleep) == ["off"] * PROCESSES
    unseen = send_whole(asleep, "unseen")
    assert "Traceback" not in asleep.log  # vLLM may leave one of its own when it ends
    asleep.finish()  # the exporter ships all that there is
    booked = len(asleep.read_book().steps)
    assert 0 < count_steps(asleep) < booked
    traces = {span.trace_id.hex() for span in asleep.list_spans(REQUEST)}
    assert traces.isdisjoint(list_traces(unseen))
    assert list(asleep.server.runtime.iterdir()) == []
