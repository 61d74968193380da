# Hooks into torch for any training loop: data, backward, optimizer, evaluation, checkpoints. What they see
# goes to the training loop's clock. Imports no torch: it is the user's.
import functools
import sys
from collections.abc import Callable
from typing import Any

from otel_llmprism.instrumentation.hooking import Target, Wrap, install_hooks, remove_hooks
from otel_llmprism.instrumentation.iteration_clock import Activity
from otel_llmprism.instrumentation.training_loop import LOOP
from otel_llmprism.native.ring_records import Pause

_OPTIMIZER = "optim.Optimizer"


def wrap_activity(activity: Activity, pause: Pause = Pause.UNKNOWN) -> Wrap:
    """Return a wrap that books all of a call as one activity."""

    def wrap(original: Any) -> Any:
        is_compiling = find_compiling_test()

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # Asked first: a compiler that traces through here must see nothing of ours.
            if is_compiling() or not LOOP.enter(activity):
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                LOOP.leave(pause=pause)

        return call

    return wrap


def wrap_optimizer_step(make_step: Any) -> Any:
    """Wrap what torch puts round the `step` of each optimizer class, so that we are round that."""
    is_compiling = find_compiling_test()

    @functools.wraps(make_step)
    def make(step: Any) -> Any:
        inner = make_step(step)

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return inner(*args, **kwargs)
            return _run_step(inner, id(args[0]) if args else None, args, kwargs)

        return call

    return make


def wrap_scaler_step(original: Any) -> Any:
    """Wrap GradScaler.step: an iteration whose gradients overflowed is one too, without a step of its own."""

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        return _run_step(original, ("scaler", id(optimizer)), (self, optimizer, *args), kwargs)

    return step


def wrap_owner_step(original: Any) -> Any:
    """Wrap the step of what owns optimizers and is none of torch's: it counts, and those inside do not."""

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _run_step(original, ("owner", id(self)), (self, *args), kwargs)

    return step


def _run_step(step: Any, key: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not LOOP.enter(Activity.OPTIMIZER, key):
        return step(*args, **kwargs)
    try:
        result = step(*args, **kwargs)
    except BaseException:
        LOOP.leave()
        raise
    LOOP.leave(stepped=key)
    return result


def wrap_backward(original: Any) -> Any:
    """Wrap torch.autograd.backward, which Tensor.backward calls, and keep it known to TorchScript."""
    wrapper = wrap_activity(Activity.BACKWARD)(original)
    builtins = sys.modules.get("torch.jit._builtins")
    if builtins is not None:
        builtins._register_builtin(wrapper, "aten::backward")  # noqa: SLF001
    return wrapper


def wrap_eval(original: Any) -> Any:
    """Wrap Module.eval: perhaps an evaluation begins. Only then the way back is watched."""
    is_compiling = find_compiling_test()
    module_class = sys.modules["torch"].nn.Module

    @functools.wraps(original)
    def evaluate(self: Any) -> Any:
        result = original(self)
        if not is_compiling() and LOOP.note_evaluating(self):
            _watch_training_mode(module_class)
        return result

    return evaluate


def _watch_training_mode(module_class: Any) -> None:
    """Wrap Module.train until the watched module is back: called for each part, it is too hot to stay so."""
    original = module_class.train
    if hasattr(original, "_llmprism_watch"):
        return

    @functools.wraps(original)
    def train(self: Any, mode: bool = True) -> Any:
        result = original(self, mode)
        if mode and LOOP.note_training(self) and module_class.train is train:
            module_class.train = original
        return result

    train._llmprism_watch = True  # type: ignore[attr-defined]  # noqa: SLF001
    module_class.train = train


def find_compiling_test() -> Callable[[], bool]:
    """Return torch's own test, which its compiler knows and folds away."""
    test: Callable[[], bool] = sys.modules["torch"].compiler.is_compiling
    return test


# All on "torch" itself: by then every part of it is there.
HOOKS: tuple[tuple[Target, Wrap], ...] = (
    (Target("torch", f"{_OPTIMIZER}.profile_hook_step", ("func",)), wrap_optimizer_step),
    (Target("torch", "amp.grad_scaler.GradScaler.step", ("optimizer",)), wrap_scaler_step),
    (Target("torch", "autograd.backward", ("tensors",)), wrap_backward),
    (Target("torch", "utils.data.dataloader._BaseDataLoaderIter.__next__"), wrap_activity(Activity.DATA)),
    (Target("torch", "nn.Module.eval"), wrap_eval),
    (Target("torch", "save", ("obj", "f")), wrap_activity(Activity.PAUSE, Pause.CHECKPOINT)),
    (
        Target("torch.distributed.checkpoint", "save", ("state_dict",)),
        wrap_activity(Activity.PAUSE, Pause.CHECKPOINT),
    ),
    (
        Target("torch.distributed.checkpoint", "async_save", ("state_dict",)),
        wrap_activity(Activity.PAUSE, Pause.CHECKPOINT),
    ),
    (
        Target("safetensors.torch", "save_file", ("tensors", "filename")),
        wrap_activity(Activity.PAUSE, Pause.CHECKPOINT),
    ),
)


def install() -> None:
    """Wait for the framework and hook it."""
    install_hooks("torch", HOOKS)


def remove() -> None:
    """Put back what was there."""
    remove_hooks("torch")
