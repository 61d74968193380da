import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from otel_llmprism.instrumentation.frameworks.vllm import worker as module
from otel_llmprism.instrumentation.frameworks.vllm.scheduler_book import (
    HOST_TIMES_ATTRIBUTE,
    TICKET_ATTRIBUTE,
)
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.native.ring_records import UNKNOWN_NS, Kind


class PlainWorker:
    def __init__(self) -> None:
        self.rank = 3
        self.result: Any = None
        self.failure: Exception | None = None

    def execute_model(self, _scheduler_output: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        return self.result


class SamplingWorker(PlainWorker):
    def sample_tokens(self, grammar_output: Any) -> str:
        return f"tokens under {grammar_output}"


def hook(kind: type[PlainWorker]) -> Any:
    hooked = {"execute_model": module.wrap_execute_model(kind.execute_model)}
    if issubclass(kind, SamplingWorker):
        hooked["sample_tokens"] = module.wrap_sample_tokens(kind.sample_tokens)
    return type("Hooked", (kind,), hooked)()


def make_output(step: int | None) -> Any:
    output = SimpleNamespace()
    if step is not None:
        setattr(output, TICKET_ATTRIBUTE, (step, 0, 0.5, 1))
    return output


def list_steps(run: Any) -> list[int]:
    return [int(row["step"]) for row in run.list_rows(Kind.STEP_RANK)]


def test_forward_and_sampling_are_one_part_of_one_step(run: Any) -> None:
    worker, output = hook(SamplingWorker), make_output(7)
    assert worker.execute_model(output) is None
    assert list_steps(run) == []
    assert worker.sample_tokens("grammar") == "tokens under grammar"
    (row,) = run.list_rows(Kind.STEP_RANK)
    assert (int(row["step"]), int(row["rank"])) == (7, 3)
    execute_ns, sample_ns = getattr(output, HOST_TIMES_ATTRIBUTE)
    assert int(row["end_ns"]) - int(row["start_ns"]) >= execute_ns + sample_ns


def test_a_result_at_once_ends_the_step(run: Any) -> None:
    worker = hook(SamplingWorker)
    worker.result = "output"
    output = make_output(7)
    assert worker.execute_model(output) == "output"
    assert list_steps(run) == [7]
    assert getattr(output, HOST_TIMES_ATTRIBUTE)[1] == UNKNOWN_NS


def test_a_release_without_a_sampling_call_ends_the_step_with_the_forward(run: Any) -> None:
    worker = hook(PlainWorker)
    worker.execute_model(make_output(7))
    assert list_steps(run) == [7]


def test_a_step_that_nobody_samples_is_over_when_the_next_begins(run: Any) -> None:
    worker = hook(SamplingWorker)
    worker.execute_model(make_output(7))
    worker.execute_model(make_output(8))
    assert list_steps(run) == [7]


def test_what_has_no_ticket_is_none_of_ours(run: Any) -> None:
    worker = hook(SamplingWorker)
    worker.execute_model(make_output(None))
    worker.sample_tokens(None)
    assert run.ring.records == []


def test_a_workers_error_stays_its_own(run: Any) -> None:
    worker = hook(SamplingWorker)
    worker.failure = RuntimeError("theirs")
    with pytest.raises(RuntimeError, match="theirs"):
        worker.execute_model(make_output(7))
    worker.failure = None
    worker.execute_model(make_output(8))
    worker.sample_tokens(None)
    assert list_steps(run) == [7, 8]


def test_a_rank_says_where_it_stands(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise AssertionError("group is not initialized")

    state = ModuleType("vllm.distributed.parallel_state")
    state.get_tp_group = lambda: SimpleNamespace(rank_in_group=1)  # type: ignore[attr-defined]
    state.get_pp_group = lambda: SimpleNamespace(rank_in_group=2)  # type: ignore[attr-defined]
    state.get_dp_group = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.distributed.parallel_state", state)
    assert module.read_place(SimpleNamespace(rank=5)) == RankPlace(5, tp=1, pp=2)
