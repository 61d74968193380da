# vLLM's scheduler: each step when it is scheduled and when its result is back. A step's ticket travels to the
# workers as a plain attribute of the scheduler's output, which they may drop without harm.
import functools
import time
from collections.abc import Callable
from typing import Any

from otel_llmprism.instrumentation.frameworks.vllm.carrier import strip_carrier
from otel_llmprism.instrumentation.frameworks.vllm.scheduler_book import SchedulerBook
from otel_llmprism.instrumentation.process_run import current_run, join_run
from otel_llmprism.instrumentation.quiet import quiet
from otel_llmprism.native.extension import load_extension

ROLE = "engine-core"
_BOOK_ATTRIBUTE = "_llmprism_book"


def find_book(scheduler: Any) -> SchedulerBook | None:
    """Return the book of a scheduler; None while this process records nothing."""
    book: SchedulerBook | None = scheduler.__dict__.get(_BOOK_ATTRIBUTE)
    run = current_run() or join_run(ROLE)
    if run is None:
        if book is not None:
            book.note_asleep()
        return None
    if book is None:
        book = SchedulerBook(scheduler, run)
        setattr(scheduler, _BOOK_ATTRIBUTE, book)
        if not hasattr(scheduler, "_preempt_request"):
            _watch_freed_blocks(scheduler, book)
    return book


def wrap_add_request(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book arrivals."""

    @functools.wraps(original)
    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        note_arrival(self, request)
        return original(self, request, *args, **kwargs)

    return add_request


def wrap_schedule(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book steps."""
    book_lent = extension.note_scheduled if (extension := load_extension()) else _leave_to_python
    clock = time.monotonic_ns

    @functools.wraps(original)
    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = clock()
        output = original(self, *args, **kwargs)
        if not book_lent(self, output, start_ns):
            note_scheduled(self, output, start_ns)
        return output

    return schedule


def wrap_update_from_output(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book results: the scheduler's process has one when it begins to take it in."""
    book_lent = extension.note_output if (extension := load_extension()) else _leave_to_python
    clock = time.monotonic_ns

    @functools.wraps(original)
    def update_from_output(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        ready_ns = clock()
        try:
            return original(self, scheduler_output, *args, **kwargs)
        finally:
            if not book_lent(self, scheduler_output, ready_ns):
                note_output(self, scheduler_output, ready_ns)

    return update_from_output


def wrap_preempt_request(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book preemptions with what they throw away, which is gone afterwards."""

    @functools.wraps(original)
    def _preempt_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        note_preempted(self, request)
        return original(self, request, *args, **kwargs)

    return _preempt_request


def wrap_free_request(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book ends."""

    @functools.wraps(original)
    def _free_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        note_freed(self, request)
        return original(self, request, *args, **kwargs)

    return _free_request


@quiet("vllm", None)
def note_arrival(scheduler: Any, request: Any) -> None:
    """Book an arrival, unless it is the next part of a request that streams its input."""
    book = find_book(scheduler)
    if book is None or request.request_id in scheduler.requests:
        strip_carrier(request)
    else:
        book.requests.admit(request, time.monotonic_ns())


@quiet("vllm", None)
def note_scheduled(scheduler: Any, output: Any, start_ns: int) -> None:
    """See SchedulerBook.note_scheduled."""
    end_ns = time.monotonic_ns()
    book = find_book(scheduler)
    if book is not None:
        book.note_scheduled(output, start_ns, end_ns)


@quiet("vllm", None)
def note_output(scheduler: Any, output: Any, ready_ns: int) -> None:
    """See SchedulerBook.note_output."""
    book = find_book(scheduler)
    if book is not None:
        book.note_output(output, ready_ns)


@quiet("vllm", None)
def note_preempted(scheduler: Any, request: Any) -> None:
    """See SchedulerBook.note_preempted."""
    book = find_book(scheduler)
    if book is not None:
        book.note_preempted(request.request_id, request.num_computed_tokens)


@quiet("vllm", None)
def note_freed(scheduler: Any, request: Any) -> None:
    """See SchedulerBook.note_freed."""
    book = find_book(scheduler)
    if book is not None:
        book.note_freed(request)


def _leave_to_python(_scheduler: Any, _output: Any, _time_ns: int) -> bool:
    return False


def _watch_freed_blocks(scheduler: Any, book: SchedulerBook) -> None:
    # vLLM before 0.12 preempts inside schedule(): a request whose blocks are freed while it still runs.
    original = scheduler.kv_cache_manager.free

    @quiet("vllm", None)
    def note_blocks(request: Any) -> None:
        if request.status.name == "RUNNING" and current_run() is not None:
            book.note_preempted(request.request_id, request.num_computed_tokens)

    @functools.wraps(original)
    def free(request: Any, *args: Any, **kwargs: Any) -> Any:
        note_blocks(request)
        return original(request, *args, **kwargs)

    scheduler.kv_cache_manager.free = free
