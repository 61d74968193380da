# Hooks round the start and stop of torch's profilers, so that we know when to keep off the GPU. They measure
# nothing and change nothing.
import contextlib
import functools
from typing import Any

from otel_llmprism.instrumentation.hooking import Target, Wrap, install_hooks, remove_hooks
from otel_llmprism.instrumentation.profiler_state import note_profiler_start, note_profiler_stop

_KINETO = "torch.profiler.profiler"
_AUTOGRAD = "torch.autograd.profiler"


def wrap_start(original: Any) -> Any:
    """Tell of a profiler before it starts."""

    @functools.wraps(original)
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            note_profiler_start(self)
        try:
            return original(self, *args, **kwargs)
        except BaseException:
            with contextlib.suppress(Exception):
                note_profiler_stop(self)
            raise

    return start


def wrap_stop(original: Any) -> Any:
    """Tell of it after it stopped, also when that failed."""

    @functools.wraps(original)
    def stop(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            with contextlib.suppress(Exception):
                note_profiler_stop(self)

    return stop


HOOKS: tuple[tuple[Target, Wrap], ...] = (
    (Target(_KINETO, "profile.start"), wrap_start),
    (Target(_KINETO, "profile.stop"), wrap_stop),
    (Target(_AUTOGRAD, "profile.__enter__"), wrap_start),
    (Target(_AUTOGRAD, "profile.__exit__"), wrap_stop),
)


def install() -> None:
    """Wait for torch's profilers and hook them."""
    install_hooks("profilers", HOOKS)


def remove() -> None:
    """Put back what was there."""
    remove_hooks("profilers")
