# The hooks on Megatron, on stand-ins for its training loop and schedules.
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from otel_llmprism.instrumentation.frameworks import megatron as hooks
from otel_llmprism.instrumentation.iteration_clock import Iteration
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.training_loop import LOOP, TrainingLoop
from otel_llmprism.instrumentation.training_run import TrainingRun, find_place
from otel_llmprism.native.ring_records import UNKNOWN_NS, Pause
from otel_llmprism.testing.torch_stand_in import build_torch

MS = 1_000_000
MICRO_BATCHES = 4


class SeenRun(TrainingRun):
    """Keeps the iterations instead of writing them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Iteration] = []

    def book(self, iteration: Iteration) -> None:
        self.seen.append(iteration)


class Clock:
    """Each look costs a millisecond."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += MS
        return self.now_ns


def build_schedules() -> Any:
    schedules: Any = ModuleType("megatron.core.pipeline_parallel.schedules")

    def forward_step(forward_step_func: Any, data_iterator: Any, model: Any) -> None:
        del forward_step_func, data_iterator, model

    def backward_step(input_tensor: Any, output_tensor: Any) -> None:
        del input_tensor, output_tensor

    def run_schedule(*, forward_only: bool = False) -> None:
        for _ in range(MICRO_BATCHES):
            schedules.forward_step(None, None, None)
            if not forward_only:
                schedules.backward_step(None, None)

    schedules.forward_step, schedules.backward_step = forward_step, backward_step
    for name in ("no_pipelining", "pipelining_with_interleaving", "pipelining_without_interleaving"):
        setattr(schedules, f"forward_backward_{name}", run_schedule)
    return schedules


def build_training(schedules: Any) -> Any:
    training: Any = ModuleType("megatron.training.training")

    def train_step(forward_step_func: Any, data_iterator: Any, iteration: int | None = None) -> str:
        del forward_step_func, data_iterator, iteration
        schedules.forward_backward_no_pipelining(forward_only=False)
        return "loss"

    training.train_step = train_step
    training.evaluate = training.evaluate_and_print_results = lambda: (
        schedules.forward_backward_no_pipelining(forward_only=True)
    )
    training.save_checkpoint = lambda: None
    return training


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Iteration]]:
    run = SeenRun()
    monkeypatch.setattr("otel_llmprism.instrumentation.training_loop.time", Clock())
    TrainingLoop.__init__(LOOP, run)
    yield run.seen
    LOOP.reset()


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, seen: list[Iteration]) -> Iterator[Any]:
    del seen
    schedules = build_schedules()
    stand_in = build_training(schedules)
    monkeypatch.setitem(sys.modules, "torch", build_torch())
    monkeypatch.setitem(sys.modules, schedules.__name__, schedules)
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    hooks.install()
    yield stand_in
    hooks.remove()


def test_a_train_step_is_an_iteration_with_its_number_and_micro_batches(
    training: Any, seen: list[Iteration]
) -> None:
    for number in range(100, 103):
        assert training.train_step(None, None, iteration=number) == "loss"
    assert [one.number for one in seen] == [100, 101, 102]
    assert [one.micro_batches for one in seen] == [MICRO_BATCHES] * 3
    assert seen[1].forward_ns == seen[1].backward_ns == MICRO_BATCHES * MS
    assert LOOP.run.engine_name == "megatron"


def test_older_releases_keep_the_number_in_a_global(
    training: Any, seen: list[Iteration], monkeypatch: pytest.MonkeyPatch
) -> None:
    training.train_step(None, None)
    holder: Any = ModuleType("megatron.training.global_vars")
    holder.get_args = lambda: type("Args", (), {"curr_iteration": 7})
    monkeypatch.setitem(sys.modules, "megatron.training.global_vars", holder)
    training.train_step(None, None)
    assert [one.number for one in seen] == [UNKNOWN_NS, 7]


def test_evaluation_and_checkpoint_are_pauses_and_no_micro_batches(
    training: Any, seen: list[Iteration]
) -> None:
    training.train_step(None, None)
    training.evaluate()
    training.save_checkpoint()
    training.train_step(None, None)
    assert [pause.reason for pause in seen[1].pauses] == [Pause.EVALUATION, Pause.CHECKPOINT]
    assert seen[1].forward_ns == seen[0].forward_ns
    assert seen[1].micro_batches == MICRO_BATCHES


def test_a_rank_stands_where_megatron_says(monkeypatch: pytest.MonkeyPatch) -> None:
    state: Any = ModuleType("megatron.core.parallel_state")
    state.model_parallel_is_initialized = lambda: True
    for at, name in enumerate(("tensor_model", "pipeline_model", "data", "context"), start=1):
        setattr(state, f"get_{name}_parallel_rank", lambda at=at: at)
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    assert find_place(9) == RankPlace(9, tp=1, pp=2, dp=3, cp=4, ep=0)  # this release knows no experts
    state.model_parallel_is_initialized = lambda: False
    assert find_place(9) == RankPlace(9, dp=9)
