# Keeps what our wrappers do from ever reaching the framework: errors end here, the first is said, and a hook
# that fails again and again stays off and says that too. Recorders guard themselves; this guards what reads
# the framework's objects.
import contextlib
import functools
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from otel_llmprism.instrumentation.guard import FORGET_FAILURES_NS, MAX_FAILURES
from otel_llmprism.instrumentation.process_run import tell_absent_hook, tell_failing_hook

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")


def quiet(framework: str, fallback: F) -> Callable[[Callable[P, R]], Callable[P, R | F]]:
    """Make a function safe to call in a framework's processes; `fallback` on any error."""

    def decorate(function: Callable[P, R]) -> Callable[P, R | F]:
        failures = failed_ns = 0

        def note_failure(error: Exception) -> None:
            nonlocal failures, failed_ns
            now_ns = time.monotonic_ns()
            failures = failures + 1 if now_ns - failed_ns < FORGET_FAILURES_NS else 1
            failed_ns = now_ns
            # Only the type: a message could hold what a user wrote.
            name, why = f"{framework}.{function.__name__}", f"fails with {type(error).__name__}"
            if failures >= MAX_FAILURES:
                tell_absent_hook(name, why)
            else:
                tell_failing_hook(name, why)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R | F:
            if failures >= MAX_FAILURES:
                return fallback
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  whatever it is, the framework goes on
                with contextlib.suppress(Exception):  # this is where errors end
                    note_failure(error)
                return fallback

        return call

    return decorate
