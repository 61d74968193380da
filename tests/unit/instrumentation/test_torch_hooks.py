# The hooks on torch, on a stand-in for it: what a training loop does is seen, and nothing of it is changed.
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from otel_llmprism.instrumentation.frameworks import torch as hooks
from otel_llmprism.instrumentation.iteration_clock import Iteration
from otel_llmprism.instrumentation.training_loop import LOOP, TrainingLoop
from otel_llmprism.instrumentation.training_run import TrainingRun
from otel_llmprism.native.ring_records import Pause
from otel_llmprism.testing.torch_stand_in import build_torch

MS = 1_000_000


class SeenRun(TrainingRun):
    """Keeps the iterations instead of writing them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Iteration] = []

    def book(self, iteration: Iteration) -> None:
        self.seen.append(iteration)


class Clock:
    """The time that the loop sees; each look costs a millisecond."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += MS
        return self.now_ns


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Iteration]]:
    run = SeenRun()
    monkeypatch.setattr("otel_llmprism.instrumentation.training_loop.time", Clock())
    TrainingLoop.__init__(LOOP, run)
    yield run.seen
    LOOP.reset()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch, seen: list[Iteration]) -> Iterator[Any]:
    del seen
    stand_in = build_torch()
    for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    hooks.install()
    yield stand_in
    hooks.remove()


def train(torch: Any, optimizer: Any, batches: int = 1) -> None:
    for _ in torch.utils.data.dataloader._BaseDataLoaderIter(batches):
        torch.autograd.backward(None)
        assert optimizer.step() == "stepped"


def test_each_optimizer_step_ends_an_iteration(torch: Any, seen: list[Iteration]) -> None:
    optimizer = torch.optim.Optimizer()
    train(torch, optimizer, 3)
    assert [one.micro_batches for one in seen] == [1, 1, 1]
    assert all(min(one.data_ns, one.forward_ns, one.backward_ns, one.optimizer_ns) > 0 for one in seen)
    assert seen[1].start_ns == seen[0].end_ns


def test_a_subclass_that_was_made_before_is_hooked_when_it_steps(torch: Any, seen: list[Iteration]) -> None:
    adam = type("Adam", (torch.optim.Optimizer,), {"step": lambda _self: "stepped"})
    train(torch, adam(), 2)
    assert len(seen) == 2


def test_an_overflow_that_skips_the_step_is_still_an_iteration(torch: Any, seen: list[Iteration]) -> None:
    optimizer, scaler = torch.optim.Optimizer(), torch.amp.grad_scaler.GradScaler()
    for has_overflowed in (False, True, False):
        scaler.has_overflowed = has_overflowed
        torch.autograd.backward(None)
        assert scaler.step(optimizer) == (None if has_overflowed else "stepped")
    assert len(seen) == 3


def test_evaluation_and_checkpoint_are_pauses_of_the_next_iteration(
    torch: Any, seen: list[Iteration]
) -> None:
    model, optimizer = torch.nn.Module(5), torch.optim.Optimizer()
    train(torch, optimizer)
    model.eval()
    list(torch.utils.data.dataloader._BaseDataLoaderIter(4))
    model.train()
    torch.save({}, "file")
    train(torch, optimizer)
    assert [pause.reason for pause in seen[1].pauses] == [Pause.EVALUATION, Pause.CHECKPOINT]
    assert seen[1].data_ns == seen[0].data_ns + MS  # the look that found the first loader at its end


def test_the_way_back_from_evaluation_is_only_watched_while_there_is_one(torch: Any) -> None:
    model, optimizer = torch.nn.Module(5), torch.optim.Optimizer()
    untouched = torch.nn.Module.train
    model.eval()  # nobody has trained yet
    assert torch.nn.Module.train is untouched
    train(torch, optimizer)
    model.eval()
    assert torch.nn.Module.train is not untouched
    assert model.train() is model
    assert torch.nn.Module.train is untouched
    assert all(part.training for part in model.parts)


def test_a_frozen_part_in_evaluation_mode_is_no_pause(torch: Any, seen: list[Iteration]) -> None:
    model, optimizer = torch.nn.Module(2), torch.optim.Optimizer()
    untouched = torch.nn.Module.train
    for _ in range(3):
        model.train()
        model.parts[0].eval()
        train(torch, optimizer)
    assert all(not one.pauses for one in seen)
    model.train()
    assert torch.nn.Module.train is untouched


def test_what_a_compiler_traces_is_not_ours(torch: Any, seen: list[Iteration]) -> None:
    torch.is_traced = True
    train(torch, torch.optim.Optimizer(), 3)
    assert not seen


def test_an_error_of_the_users_passes_through_and_the_next_iteration_is_seen(
    torch: Any, seen: list[Iteration]
) -> None:
    optimizer = torch.optim.Optimizer()
    train(torch, optimizer)
    torch.backward_error = ValueError("the user's own")
    with pytest.raises(ValueError, match="the user's own"):
        torch.autograd.backward(None)
    torch.backward_error = None
    train(torch, optimizer)
    assert len(seen) == 2


def test_an_error_of_ours_never_reaches_the_training(
    torch: Any, seen: list[Iteration], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(LOOP.clock, "enter", fail)
    train(torch, torch.optim.Optimizer(), 30)
    assert not seen
    assert LOOP.hook.is_off


def test_removed_hooks_leave_torch_as_it_was(torch: Any, seen: list[Iteration]) -> None:
    hooks.remove()
    assert not hasattr(torch.autograd.backward, "_llmprism_original")
    train(torch, torch.optim.Optimizer())
    assert not seen


def test_a_thread_that_only_reads_data_is_not_the_one_that_trains(torch: Any, seen: list[Iteration]) -> None:
    import threading  # noqa: PLC0415  this test alone

    optimizer = torch.optim.Optimizer()
    train(torch, optimizer)
    loader = torch.utils.data.dataloader._BaseDataLoaderIter(50)
    reader = threading.Thread(target=lambda: list(loader))
    reader.start()
    reader.join()
    torch.autograd.backward(None)
    optimizer.step()
    assert seen[1].data_ns == MS  # the look that found the first loader at its end


def test_a_training_in_a_thread_of_its_own_is_seen(torch: Any, seen: list[Iteration]) -> None:
    import threading  # noqa: PLC0415  this test alone

    trainer = threading.Thread(target=lambda: train(torch, torch.optim.Optimizer(), 3))
    trainer.start()
    trainer.join()
    assert len(seen) == 3
