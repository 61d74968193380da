# Hooks into Megatron-LM and Megatron Core: one iteration a train step, micro-batches from the pipeline
# schedules, evaluations and checkpoints apart. Spans that Megatron makes of its own (nemo.lens) stay as they
# are: ours are of another kind, and nothing of theirs is read or set.
import functools
import inspect
import sys
from typing import Any

from otel_llmprism.instrumentation.frameworks.torch import find_compiling_test, wrap_activity, wrap_owner_step
from otel_llmprism.instrumentation.hooking import Target, Wrap, install_hooks, remove_hooks
from otel_llmprism.instrumentation.iteration_clock import Activity
from otel_llmprism.instrumentation.training_loop import LOOP
from otel_llmprism.native.ring_records import Pause

_ENGINE = "megatron"
_MAX_ITERATION = 1 << 62


def wrap_train_step(original: Any) -> Any:
    """Wrap train_step: it is the iteration, whichever optimizers run in it and even if none does."""
    LOOP.run.engine_name = _ENGINE
    names = list(inspect.signature(original).parameters)
    at = names.index("iteration") if "iteration" in names else None

    @functools.wraps(original)
    def train_step(*args: Any, **kwargs: Any) -> Any:
        if not LOOP.enter(Activity.ITERATION, number=find_iteration(at, args, kwargs)):
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            LOOP.leave()

    return train_step


def find_iteration(at: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return Megatron's number of the iteration under way: an argument of late, before that a global."""
    number = args[at] if at is not None and at < len(args) else kwargs.get("iteration")
    if number is None:
        try:
            number = sys.modules["megatron.training.global_vars"].get_args().curr_iteration
        except Exception:  # noqa: BLE001  other releases keep it elsewhere, and a number is all that is missing
            return None
    return number if isinstance(number, int) and 0 <= number < _MAX_ITERATION else None


def wrap_forward_step(original: Any) -> Any:
    """Wrap a micro-batch's forward; that it is there says that Megatron trains, with or without its loop."""
    LOOP.run.engine_name = _ENGINE
    return wrap_activity(Activity.FORWARD)(original)


def wrap_schedule(original: Any) -> Any:
    """Wrap a pipeline schedule: without a backward pass it is an evaluation."""
    is_compiling = find_compiling_test()

    @functools.wraps(original)
    def schedule(*args: Any, **kwargs: Any) -> Any:
        is_evaluation = kwargs.get("forward_only") is True
        if not is_evaluation or is_compiling() or not LOOP.enter(Activity.PAUSE):
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            LOOP.leave(pause=Pause.EVALUATION)

    return schedule


_SCHEDULES = "megatron.core.pipeline_parallel.schedules"
_OPTIMIZER = "megatron.core.optimizer.optimizer"
_TRAINING = "megatron.training.training"
_EVALUATION = wrap_activity(Activity.PAUSE, Pause.EVALUATION)
_CHECKPOINT = wrap_activity(Activity.PAUSE, Pause.CHECKPOINT)
HOOKS: tuple[tuple[Target, Wrap], ...] = (
    (Target(_TRAINING, "train_step", ("forward_step_func", "data_iterator")), wrap_train_step),
    (Target(_TRAINING, "evaluate_and_print_results"), _EVALUATION),
    (Target(_TRAINING, "evaluate"), _EVALUATION),
    (Target(_TRAINING, "save_checkpoint_and_time", is_optional=True), _CHECKPOINT),
    (Target(_TRAINING, "save_checkpoint"), _CHECKPOINT),
    (Target(_SCHEDULES, "forward_step", ("forward_step_func", "data_iterator")), wrap_forward_step),
    (Target(_SCHEDULES, "backward_step", ("input_tensor",)), wrap_activity(Activity.BACKWARD)),
    (Target(_SCHEDULES, "forward_backward_no_pipelining"), wrap_schedule),
    (Target(_SCHEDULES, "forward_backward_pipelining_with_interleaving"), wrap_schedule),
    (Target(_SCHEDULES, "forward_backward_pipelining_without_interleaving"), wrap_schedule),
    (Target(_OPTIMIZER, "MixedPrecisionOptimizer.step"), wrap_owner_step),
    (Target(_OPTIMIZER, "FP32Optimizer.step"), wrap_owner_step),
    (Target(_OPTIMIZER, "ChainedOptimizer.step"), wrap_owner_step),
)


def install() -> None:
    """Wait for the framework and hook it."""
    install_hooks("megatron", HOOKS)


def remove() -> None:
    """Put back what was there."""
    remove_hooks("megatron")
