# Real generate() calls of transformers with a tiny random model: each is one request, each forward one step,
# and tokens are what the results' shapes say.
import json
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.native.ring_records import UNKNOWN_NS, Finish, RequestEvent, StepKind
from otel_llmprism.testing.engine_program import Recorded, Row, run_program

PROGRAM = Path(__file__).parent / "programs" / "generate_tiny.py"
PROMPT, NEW = 7, 5


@pytest.fixture(scope="module")
def calls_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generate") / "calls.json"


@pytest.fixture(scope="module")
def recorded(engine_python: Path, calls_file: Path) -> Recorded:
    return run_program(engine_python, calls_file.parent, PROGRAM, str(calls_file))


@pytest.fixture(scope="module")
def calls(recorded: Recorded, calls_file: Path) -> list[Any]:
    """Return what the program says of its calls and what was recorded of each, in order of arrival."""
    own = json.loads(calls_file.read_text())
    arrivals = sorted(recorded.list_rows("arrivals"), key=lambda row: row["arrival_ns"])
    ends = {row["handle"]: row for row in recorded.list_rows("ends")}
    assert len(arrivals) == len(ends) == len(own)
    return [
        call | {"arrival": row, "end": ends[row["handle"]]} for call, row in zip(own, arrivals, strict=True)
    ]


def find_call(calls: list[Any], name: str) -> Any:
    return next(call for call in calls if call["name"] == name)


def list_steps(recorded: Recorded, call: Any) -> list[Row]:
    """Return the steps of a call that ran alone: those scheduled between its arrival and its end."""
    first_ns, last_ns = call["arrival"]["arrival_ns"], call["end"]["time_ns"]
    return [s for s in recorded.list_rows("steps") if first_ns <= s["schedule_start_ns"] <= last_ns]


def test_every_call_is_one_request_with_the_tokens_of_its_result(calls: list[Any]) -> None:
    for call in calls:
        rows, length = call["shape"]
        assert call["end"]["prompt_tokens"] == call["prompt"], call["name"]
        assert call["end"]["output_tokens"] == rows * max(0, length - PROMPT), call["name"]
        failed = call["name"] == "failed"
        assert call["end"]["finish"] == (Finish.ERROR if failed else Finish.LENGTH), call["name"]


def test_every_forward_is_one_step_and_the_first_is_the_prefill(recorded: Recorded, calls: list[Any]) -> None:
    for name, rows in (("greedy", 1), ("batch", 3), ("several", 2), ("beams", 2), ("traced", 1)):
        call = find_call(calls, name)
        steps = list_steps(recorded, call)
        assert [step["kind"] for step in steps] == [StepKind.PREFILL] + [StepKind.DECODE] * (NEW - 1)
        assert steps[0]["prefill_tokens"] == rows * PROMPT
        assert [step["decode_tokens"] for step in steps[1:]] == [rows] * (NEW - 1)
        assert [step["kv_tokens"] for step in steps] == [rows * (PROMPT + at) for at in range(NEW)]
        assert call["end"]["steps"] == NEW


def test_without_a_cache_each_forward_computes_everything_again(recorded: Recorded, calls: list[Any]) -> None:
    steps = list_steps(recorded, find_call(calls, "uncached"))
    tokens = [step["prefill_tokens"] + step["decode_tokens"] for step in steps]
    assert tokens == [PROMPT + at for at in range(NEW)]


def test_steps_are_numbered_without_a_gap_and_their_tokens_add_up(recorded: Recorded) -> None:
    steps = recorded.list_rows("steps")
    assert [step["step"] for step in steps] == list(range(len(steps)))
    assert all(step["flags"] & 1 for step in steps)  # members told in full, also of calls side by side
    # Results of calls side by side may overtake each other, which leaves nothing of a cycle.
    assert all(step["cycle_ns"] < UNKNOWN_NS for step in steps)
    assert all(step["cycle_ns"] > 0 for step in steps if step["running"] == 1)
    assert len(recorded.list_rows("ranks")) == len(steps)


def test_an_assistants_forwards_are_not_the_models_steps(recorded: Recorded, calls: list[Any]) -> None:
    call = find_call(calls, "assisted")
    assert call["end"]["steps"] == len(list_steps(recorded, call)) <= NEW


def test_the_first_token_is_told_of_each_call_that_has_one(recorded: Recorded, calls: list[Any]) -> None:
    first = {r["handle"]: r for r in recorded.list_rows("events") if r["event"] == RequestEvent.FIRST_TOKEN}
    for call in calls:
        handle = call["arrival"]["handle"]
        assert (handle in first) == (call["name"] != "failed")
        if handle in first:
            assert call["arrival"]["arrival_ns"] < first[handle]["time_ns"] < call["end"]["time_ns"]


def test_a_call_within_a_span_is_its_child(calls: list[Any]) -> None:
    for call in calls:
        arrival = call["arrival"]
        parent = call.get("span", "0" * 16)
        assert arrival["parent_span_id"].to_bytes(8, "little").hex() == parent
        if "trace" in call:
            halves = (arrival["trace_id_high"], arrival["trace_id_low"])
            assert b"".join(half.to_bytes(8, "little") for half in halves).hex() == call["trace"]
