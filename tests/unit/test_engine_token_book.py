# The book that judges our records: what it makes of the lines that the engine's process wrote.
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_llmprism.testing.engine_token_book import ABORTED, LENGTH, read_token_book
from otel_llmprism.testing.engine_token_log import build_writer, describe_end, wrap_preempt, wrap_schedule


def schedule(tokens: dict[str, int], starts: dict[str, int] | None = None) -> dict[str, Any]:
    return {"event": "schedule", "tokens": tokens, "total": sum(tokens.values()), "starts": starts or {}}


def write_log(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "tokens.jsonl.1"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def end(request: str, status: str, prompt: int, generated: int, preemptions: int = 0) -> dict[str, Any]:
    return {
        "event": "ended",
        "request": request,
        "status": status,
        "prompt": prompt,
        "generated": generated,
        "preemptions": preemptions,
    }


def test_arithmetic_counts_what_a_preemption_made_compute_again(tmp_path: Path) -> None:
    """20 prompt tokens, 4 of them cached; lost after 18, of which 8 were found again."""
    path = write_log(
        tmp_path,
        schedule({"a": 14}, {"a": 4}),
        {"event": "preempted", "request": "a", "lost": 18},
        schedule({"b": 3}, {"b": 0}),
        schedule({"a": 12}, {"a": 8}),
        schedule({"a": 1, "b": 1}),
        end("a", LENGTH, 20, 2, 1),
    )
    book = read_token_book([path])
    assert book.recomputed["a"] == 10
    assert book.tokens["a"] == 14 + 12 + 1 == book.predict_tokens("a")
    assert book.steps_of == {"a": 3, "b": 2}
    assert book.list_ended(LENGTH) == ["a"]
    assert book.list_ended(ABORTED) == []


def test_a_call_that_schedules_nothing_is_no_step(tmp_path: Path) -> None:
    path = write_log(tmp_path, schedule({}), schedule({"a": 5}, {"a": 0}), schedule({}))
    assert read_token_book([path]).steps == [{"a": 5}]


def test_two_processes_that_schedule_are_not_one_book(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too many values"):
        read_token_book([tmp_path / "1", tmp_path / "2"])


def test_the_log_is_written_round_calls_that_stay_as_they_are(tmp_path: Path) -> None:
    """What the scheduler returns and takes is passed on; the line is on the disk at once."""
    output = SimpleNamespace(
        num_scheduled_tokens={"a": 5, "b": 2},
        total_num_scheduled_tokens=7,
        scheduled_new_reqs=[SimpleNamespace(req_id="a", num_computed_tokens=16)],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=["b", "c"], num_computed_tokens=[32, 7], resumed_req_ids={"b"}
        ),
        finished_req_ids={"z"},
    )
    write = build_writer(str(tmp_path / "log"))
    scheduled = wrap_schedule(lambda _self, throttle: (throttle, output)[1], write)(object(), throttle=True)
    assert scheduled is output
    request = SimpleNamespace(request_id="c", num_computed_tokens=9)
    wrap_preempt(lambda _self, victim: setattr(victim, "num_computed_tokens", 0), write)(object(), request)
    (path,) = tmp_path.iterdir()
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert (first["tokens"], first["total"]) == ({"a": 5, "b": 2}, 7)
    assert first["starts"] == {"a": 16, "b": 32}
    assert second == {"event": "preempted", "request": "c", "lost": 9}


def test_no_token_id_and_no_text_is_in_the_log() -> None:
    request = SimpleNamespace(
        request_id="a",
        status=SimpleNamespace(name=LENGTH),
        num_prompt_tokens=3,
        num_output_tokens=1,
        num_preemptions=0,
        prompt_token_ids=[7, 8, 9],
    )
    assert describe_end(request) == end("a", LENGTH, 3, 1)
