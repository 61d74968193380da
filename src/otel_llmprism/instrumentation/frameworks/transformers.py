# Hooks into Hugging Face transformers: generate() becomes a request with a step a forward, the Trainer tells
# the training loop's clock what torch alone does not show. Shapes are read, never values.
import functools
import sys
import time
from collections.abc import Mapping
from typing import Any

from otel_llmprism.instrumentation.frameworks.torch import wrap_activity
from otel_llmprism.instrumentation.generation_run import CURRENT, GENERATIONS, Generation
from otel_llmprism.instrumentation.hooking import Target, Wrap, install_hooks, patch_target, remove_hooks
from otel_llmprism.instrumentation.iteration_clock import Activity
from otel_llmprism.instrumentation.trace_context import read_current_span
from otel_llmprism.instrumentation.training_loop import LOOP
from otel_llmprism.native.ring_records import Finish, Pause

_PREPARE = "prepare_inputs_for_generation"


def wrap_generate(original: Any) -> Any:
    """Wrap GenerationMixin.generate: one request a call; calls inside it belong to it."""

    @functools.wraps(original)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        generation = None if CURRENT.get() is not None else _begin(self, args, kwargs)
        if generation is None:
            return original(self, *args, **kwargs)
        token = CURRENT.set(generation)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            is_failure = isinstance(error, Exception)
            GENERATIONS.end(generation, Finish.ERROR if is_failure else Finish.ABORT, 0)
            raise
        finally:
            CURRENT.reset(token)
        _end(generation, result, args, kwargs)
        return result

    return generate


def wrap_prepare(original: Any) -> Any:
    """Wrap what makes a forward's inputs: called once before each forward, outside of compiled code."""

    @functools.wraps(original)
    def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
        generation = CURRENT.get()
        if generation is None or generation.is_preparing or generation.model is not self:
            return original(self, *args, **kwargs)
        start_ns = time.monotonic_ns()
        # All positions so far: what is beyond the prompt was generated.
        rows, length = read_shape(args[0] if args else kwargs.get("input_ids"))
        is_prefill = generation.steps == 0 or length <= generation.prompt_length
        GENERATIONS.end_forward(generation, has_token=not is_prefill)
        generation.is_preparing = True
        try:
            inputs = original(self, *args, **kwargs)
        finally:
            generation.is_preparing = False
        if generation.steps == 0 and not generation.prompt_length:
            generation.prompt_length = length
            generation.prompt_tokens = generation.prompt_tokens or rows * length
        tokens = count_tokens(inputs)
        GENERATIONS.begin_forward(generation, start_ns, tokens, rows * length, is_prefill=is_prefill)
        return inputs

    return prepare


def wrap_training_step(original: Any) -> Any:
    """Wrap Trainer.training_step: forward and backward of one micro-batch, and the Trainer's own count."""

    @functools.wraps(original)
    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        number = getattr(getattr(self, "state", None), "global_step", None)
        if not LOOP.enter(Activity.FORWARD, number=number if isinstance(number, int) else None):
            return original(self, *args, **kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            LOOP.leave()

    return training_step


def wrap_train(original: Any) -> Any:
    """Wrap Trainer.train: what was between two trainings is no part of a step."""

    @functools.wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        LOOP.note_restart()
        return original(*args, **kwargs)

    return train


def read_shape(tensor: Any) -> tuple[int, int]:
    """Return the first two sizes of a tensor, zeros where it is none."""
    shape: Any = getattr(tensor, "shape", ())
    return (int(shape[0]), int(shape[1])) if len(shape) > 1 else (0, 0)


def count_tokens(inputs: Any) -> int:
    """Return how many positions a forward with these inputs computes."""
    if not isinstance(inputs, Mapping):
        return 0
    for name in ("decoder_input_ids", "input_ids", "inputs_embeds"):
        rows, length = read_shape(inputs.get(name))
        if rows * length:
            return rows * length
    return 0


def count_output(result: Any, prompt_length: int) -> tuple[int, int]:
    """Return how many tokens were generated, of all sequences and of one, padding included."""
    rows, length = read_shape(getattr(result, "sequences", result))
    generated = max(0, length - prompt_length)
    return rows * generated, generated


def tell_finish(generated: int, length: int, settings: list[Any]) -> Finish:
    """Return why a generation ended, as far as the first setting that bounds it tells."""
    for one in settings:
        bound, reached = _read_setting(one, "max_new_tokens"), generated
        if not isinstance(bound, int):
            bound, reached = _read_setting(one, "max_length"), length
        if isinstance(bound, int):
            return Finish.LENGTH if reached >= bound else Finish.STOP
    return Finish.UNKNOWN


def _read_setting(settings: Any, name: str) -> Any:
    return settings.get(name) if isinstance(settings, Mapping) else getattr(settings, name, None)


def _begin(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Generation | None:
    if GENERATIONS.hook.is_off:
        return None
    try:
        _watch_prepare(type(model))
        rows, length = read_shape(_find_prompt(args, kwargs))
        config = getattr(model, "config", None)
        generation = GENERATIONS.begin(
            model,
            rows * length,
            read_current_span()[0],
            model_name=str(getattr(config, "_name_or_path", "") or type(model).__name__),
            version=str(getattr(sys.modules.get("transformers"), "__version__", "")),
        )
        if generation is not None and not getattr(config, "is_encoder_decoder", False):
            generation.prompt_length = length if _has_ids(args, kwargs) else 0
    except Exception:  # noqa: BLE001  whatever a model is made of, it generates
        GENERATIONS.hook.note_failure()
        return None
    return generation


def _end(generation: Generation, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        output, generated = count_output(result, generation.prompt_length)
        given = args[1] if len(args) > 1 else kwargs.get("generation_config")
        settings = [kwargs, given, getattr(generation.model, "generation_config", None)]
        finish = tell_finish(generated, generation.prompt_length + generated, settings)
    except Exception:  # noqa: BLE001  as above
        output, finish = 0, Finish.UNKNOWN
    GENERATIONS.end(generation, finish, output)


def _find_prompt(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    named = (kwargs.get(name) for name in ("inputs", "input_ids", "inputs_embeds"))
    return next((one for one in (*args[:1], *named) if one is not None), None)


def _has_ids(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    named = (kwargs.get("inputs"), kwargs.get("input_ids"))
    return any(one is not None for one in (*args[:1], *named))


def _watch_prepare(model_class: type) -> None:
    # Many models bring their own; each class is wrapped once, when it first generates.
    for owner in model_class.__mro__:
        if _PREPARE in vars(owner):
            place: Any = owner  # looked into as a module is
            patch_target("transformers", place, Target(owner.__module__, _PREPARE), wrap_prepare)
            return


_GENERATION = "transformers.generation.utils"
_TRAINER = "transformers.trainer"
HOOKS: tuple[tuple[Target, Wrap], ...] = (
    (Target(_GENERATION, "GenerationMixin.generate", ("inputs", "generation_config")), wrap_generate),
    (Target(_GENERATION, f"GenerationMixin.{_PREPARE}", ("input_ids",)), wrap_prepare),
    (Target(_TRAINER, "Trainer.train"), wrap_train),
    (Target(_TRAINER, "Trainer.training_step", ("model", "inputs")), wrap_training_step),
    (Target(_TRAINER, "Trainer.evaluate"), wrap_activity(Activity.PAUSE, Pause.EVALUATION)),
    (Target(_TRAINER, "Trainer.predict"), wrap_activity(Activity.PAUSE, Pause.EVALUATION)),
    (Target(_TRAINER, "Trainer._save_checkpoint"), wrap_activity(Activity.PAUSE, Pause.CHECKPOINT)),
)


def install() -> None:
    """Wait for the framework and hook it."""
    install_hooks("transformers", HOOKS)


def remove() -> None:
    """Put back what was there."""
    remove_hooks("transformers")
