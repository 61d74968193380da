# The hooks on transformers, on stand-ins for it: odd calls are counted as far as can be, and never broken.
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from otel_llmprism.instrumentation import engine_run, process_run
from otel_llmprism.instrumentation.engine_run import FOLDER_VARIABLE
from otel_llmprism.instrumentation.frameworks import transformers as hooks
from otel_llmprism.instrumentation.generation_run import CURRENT, GENERATIONS
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.native.ring_records import Finish, Mode
from otel_llmprism.testing.torch_stand_in import build_torch

UTILS = "transformers.generation.utils"


class Tensor:
    def __init__(self, *shape: int) -> None:
        self.shape = shape


class GenerationMixin:
    """Generates as transformers does: a preparation before each forward."""

    new_tokens = 3
    error: BaseException | None = None

    def generate(self, inputs: Any = None, generation_config: Any = None, **kwargs: Any) -> Any:
        del generation_config
        ids = inputs if inputs is not None else kwargs.get("input_ids", Tensor(1, 1))
        rows, length = ids.shape
        for at in range(self.new_tokens):
            self.prepare_inputs_for_generation(Tensor(rows, length + at))
            if self.error is not None:
                raise self.error
        return Tensor(rows, length + self.new_tokens)

    def prepare_inputs_for_generation(self, input_ids: Any) -> dict[str, Any]:
        rows, length = input_ids.shape
        return {"input_ids": Tensor(rows, length if length <= 4 else 1)}


class Model(GenerationMixin):
    """One that prepares in its own way and calls its base for the rest."""

    def prepare_inputs_for_generation(self, input_ids: Any) -> dict[str, Any]:
        return super().prepare_inputs_for_generation(input_ids) | {"of_its_own": True}


@pytest.fixture
def booked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return what was told of each call: name of what, and its numbers."""
    told: list[tuple[Any, ...]] = []
    end, begin_forward = GENERATIONS.end, GENERATIONS.begin_forward

    def see_end(generation: Any, finish: Finish, output: int) -> None:
        told.append(("end", generation.prompt_tokens, output, generation.steps, finish))
        end(generation, finish, output)

    def see_forward(generation: Any, start_ns: int, tokens: int, kv: int, *, is_prefill: bool) -> None:
        told.append(("forward", tokens, kv, is_prefill))
        begin_forward(generation, start_ns, tokens, kv, is_prefill=is_prefill)

    monkeypatch.setattr(GENERATIONS, "end", see_end)
    monkeypatch.setattr(GENERATIONS, "begin_forward", see_forward)
    return told


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(engine_run, "start_exporter", lambda _folder, _environment: 0)
    monkeypatch.setattr(process_run, "_open_control", lambda _environment: None)
    monkeypatch.setattr(process_run, "_absent", {})
    monkeypatch.setenv("OTEL_LLMPRISM_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("OTEL_LLMPRISM_RING_SLOTS", "4096")
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    process_run.end_run()
    GENERATIONS.reset()
    utils: Any = ModuleType(UTILS)
    utils.GenerationMixin = GenerationMixin
    monkeypatch.setitem(sys.modules, UTILS, utils)
    monkeypatch.setitem(sys.modules, "torch", build_torch())
    hooks.install()
    yield utils
    hooks.remove()
    GENERATIONS.reset()
    process_run.end_run()


def test_a_call_is_told_with_its_forwards(booked: list[tuple[Any, ...]]) -> None:
    result = GenerationMixin().generate(Tensor(2, 4), max_new_tokens=3)
    assert result.shape == (2, 7)
    assert booked == [
        ("forward", 8, 8, True),
        ("forward", 2, 10, False),
        ("forward", 2, 12, False),
        ("end", 8, 6, 3, Finish.LENGTH),
    ]


@pytest.mark.parametrize("is_attached", [True, False])
def test_a_process_that_was_asleep_records_once_it_is_woken(
    booked: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, *, is_attached: bool
) -> None:
    monkeypatch.setenv("OTEL_LLMPRISM_MODE", "off")
    if is_attached:
        process_run.stand_by("transformers", "1")
    else:
        GenerationMixin().generate(Tensor(1, 4))
    assert process_run.wake_run(Mode.SENTINEL) is not None
    assert booked == []
    GenerationMixin().generate(Tensor(1, 4))
    assert [one[0] for one in booked] == [*["forward"] * 3, "end"]


def test_a_training_that_was_woken_keeps_its_run(booked: list[tuple[Any, ...]]) -> None:
    process_run.stand_by("transformers", "1")
    run = process_run.wake_run(Mode.SENTINEL)
    assert run is not None
    run.build_rank_recorder(RankPlace(0))
    GenerationMixin().generate(Tensor(1, 4))
    assert booked == []


def test_a_model_with_a_preparation_of_its_own_is_seen_once_a_forward(booked: list[tuple[Any, ...]]) -> None:
    Model().generate(Tensor(1, 4))
    Model().generate(Tensor(1, 4))
    assert [one[0] for one in booked] == [*["forward"] * 3, "end"] * 2


def test_a_prompt_given_by_name_or_not_at_all_is_counted(booked: list[tuple[Any, ...]]) -> None:
    GenerationMixin().generate(input_ids=Tensor(1, 4))
    GenerationMixin().generate()
    assert [one[1:3] for one in booked if one[0] == "end"] == [(4, 3), (1, 3)]


def test_an_end_before_the_bound_is_a_stop(
    booked: list[tuple[Any, ...]],
) -> None:
    GenerationMixin().generate(Tensor(1, 4), max_new_tokens=9)
    GenerationMixin().generate(Tensor(1, 4), max_length=7)
    GenerationMixin().generate(Tensor(1, 4))
    assert [one[-1] for one in booked if one[0] == "end"] == [Finish.STOP, Finish.LENGTH, Finish.UNKNOWN]


@pytest.mark.parametrize(
    ("error", "finish"), [(ValueError("the user's"), Finish.ERROR), (KeyboardInterrupt(), Finish.ABORT)]
)
def test_what_breaks_a_call_off_passes_through(
    booked: list[tuple[Any, ...]], error: BaseException, finish: Finish
) -> None:
    model = GenerationMixin()
    model.error = error
    with pytest.raises(type(error)) as raised:
        model.generate(Tensor(1, 4))
    assert raised.value is error
    assert booked[-1] == ("end", 4, 0, 1, finish)
    assert CURRENT.get() is None


def test_a_result_without_a_shape_is_none_of_our_business(booked: list[tuple[Any, ...]]) -> None:
    model: Any = GenerationMixin()
    odd = hooks.wrap_generate(lambda _self, *_args, **_kwargs: "text")
    assert odd(model, object(), generation_config=7) == "text"
    assert booked == [("end", 0, 0, 0, Finish.UNKNOWN)]


def test_calls_inside_a_call_belong_to_it(booked: list[tuple[Any, ...]]) -> None:
    class Assisted(GenerationMixin):
        def prepare_inputs_for_generation(self, input_ids: Any) -> dict[str, Any]:
            GenerationMixin().generate(Tensor(1, 4))
            return super().prepare_inputs_for_generation(input_ids)

    Assisted().generate(Tensor(1, 4))
    assert [one[0] for one in booked] == [*["forward"] * 3, "end"]


def test_a_process_of_an_engine_generates_unseen(booked: list[tuple[Any, ...]]) -> None:
    serving = process_run.begin_run("vllm", "1", environment=dict(os.environ))
    GenerationMixin().generate(Tensor(1, 4))
    assert not booked
    assert process_run.current_run() is serving


def test_an_error_of_ours_never_reaches_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(GENERATIONS, "_find_run", fail)
    for _ in range(30):
        assert GenerationMixin().generate(Tensor(1, 4)).shape == (1, 7)
    assert GENERATIONS.hook.is_off
