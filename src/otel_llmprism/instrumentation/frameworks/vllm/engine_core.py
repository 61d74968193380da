# vLLM's EngineCore: which run it belongs to, its end, dummy batches, and the times in which it cannot step.
import functools
import time
from collections.abc import Callable
from typing import Any

from otel_llmprism.instrumentation.frameworks.vllm.core import find_book
from otel_llmprism.instrumentation.frameworks.vllm.launch import enter_core
from otel_llmprism.instrumentation.process_run import current_run, end_run
from otel_llmprism.instrumentation.quiet import quiet
from otel_llmprism.native.ring_records import Pause

_RUN_ATTRIBUTE = "_llmprism_run"
_PAUSE_ATTRIBUTE = "_llmprism_pause"  # (since, reason) while there is one


def wrap_init(original: Callable[..., Any]) -> Callable[..., Any]:
    """Find or begin the run before workers start."""

    @functools.wraps(original)
    def __init__(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        note_begin(self, vllm_config)
        original(self, vllm_config, *args, **kwargs)

    return __init__


def wrap_shutdown(original: Callable[..., Any]) -> Callable[..., Any]:
    """End this process's part in the run with its engine core."""

    @functools.wraps(original)
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            note_shutdown(self)

    return shutdown


def wrap_dummy_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book what a replica computes only to keep the others company."""

    @functools.wraps(original)
    def execute_dummy_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = time.monotonic_ns()
        try:
            return original(self, *args, **kwargs)
        finally:
            note_dummy(self, start_ns)

    return execute_dummy_batch


def wrap_sleep(original: Callable[..., Any]) -> Callable[..., Any]:
    """Note since when the engine sleeps."""
    return _wrap_pausing(original, Pause.SLEEP)


def wrap_pause(original: Callable[..., Any]) -> Callable[..., Any]:
    """Note since when the scheduler is paused."""
    return _wrap_pausing(original, Pause.UNKNOWN)


def wrap_wake_up(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book the sleep that is over."""
    return _wrap_resuming(original)


def wrap_resume(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book the pause that is over."""
    return _wrap_resuming(original)


def wrap_collective_rpc(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book the time that the engine waits for its workers to do something else, such as loading weights."""

    @functools.wraps(original)
    def collective_rpc(self: Any, method: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = time.monotonic_ns()
        try:
            return original(self, method, *args, **kwargs)
        finally:
            note_rpc(self, method, start_ns)

    return collective_rpc


def _wrap_pausing(original: Callable[..., Any], reason: Pause) -> Callable[..., Any]:
    @functools.wraps(original)
    def begin_pause(self: Any, *args: Any, **kwargs: Any) -> Any:
        note_pausing(self, reason)
        return original(self, *args, **kwargs)

    return begin_pause


def _wrap_resuming(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def end_pause(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            note_resumed(self)

    return end_pause


@quiet("vllm", None)
def note_begin(core: Any, vllm_config: Any) -> None:
    """Take part in the run of this engine core."""
    setattr(core, _RUN_ATTRIBUTE, enter_core(vllm_config))


@quiet("vllm", None)
def note_shutdown(core: Any) -> None:
    """End our part, unless another engine core of this process has begun a run of its own since."""
    run = core.__dict__.pop(_RUN_ATTRIBUTE, None)
    if run is None or run is not current_run():
        return
    end_run()


@quiet("vllm", None)
def note_dummy(core: Any, start_ns: int) -> None:
    """Book a dummy batch; it is over when it was launched, which nobody charts."""
    book = find_book(core.scheduler)
    if book is not None:
        book.note_dummy(start_ns, time.monotonic_ns())


@quiet("vllm", None)
def note_pausing(core: Any, reason: Pause) -> None:
    """Note the first of nested pauses: to sleep also pauses the scheduler."""
    pause = core.__dict__.get(_PAUSE_ATTRIBUTE)
    if pause is None or (pause[1] is Pause.UNKNOWN and reason is not Pause.UNKNOWN):
        since_ns = time.monotonic_ns() if pause is None else pause[0]
        setattr(core, _PAUSE_ATTRIBUTE, (since_ns, reason))


@quiet("vllm", None)
def note_resumed(core: Any) -> None:
    """Book a pause; steps that still ran while it began are not in it."""
    pause = core.__dict__.pop(_PAUSE_ATTRIBUTE, None)
    if pause is None:
        return
    now_ns = time.monotonic_ns()
    if getattr(core.model_executor, "is_sleeping", False):  # woken up in part
        setattr(core, _PAUSE_ATTRIBUTE, (now_ns, pause[1]))
    _record_pause(core, pause[0], now_ns, pause[1])


@quiet("vllm", None)
def note_rpc(core: Any, method: Any, start_ns: int) -> None:
    """Book a call to all workers as a pause."""
    name = method if isinstance(method, str) else getattr(method, "__name__", "")
    reason = Pause.WEIGHTS if "weight" in name or name == "load_model" else Pause.UNKNOWN
    _record_pause(core, start_ns, time.monotonic_ns(), reason)


def _record_pause(core: Any, start_ns: int, end_ns: int, reason: Pause) -> None:
    book = find_book(core.scheduler)
    if book is not None:
        book.note_pause(start_ns, end_ns, reason)
