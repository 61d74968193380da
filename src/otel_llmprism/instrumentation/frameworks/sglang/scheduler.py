# SGLang's scheduler process: which call tells of which moment of a request or a step. Everything of ours is
# guarded; the calls' arguments, results and errors are theirs.
import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from otel_llmprism.instrumentation.frameworks.sglang.launch import FRONT_VARIABLE, enter_scheduler
from otel_llmprism.instrumentation.frameworks.sglang.scheduler_book import SchedulerBook
from otel_llmprism.instrumentation.process_run import current_run
from otel_llmprism.instrumentation.quiet import quiet
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.rank_watch import RankWatch

_BOOK_ATTRIBUTE = "_llmprism_book"
_ENTERED_ATTRIBUTE = "_llmprism_entered"
_CONTEXT = "sglang.srt.runtime_context"
_open_watch: RankWatch | None = None  # of the batch that this process is launching

Method = Callable[..., Any]


def wrap_accept(original: Method) -> Method:
    """Book a request before SGLang takes it."""

    @functools.wraps(original)
    def handle_generate_request(self: Any, recv_req: Any, *args: Any, **kwargs: Any) -> Any:
        note_arrival(self, recv_req)
        return original(self, recv_req, *args, **kwargs)

    return handle_generate_request


def wrap_queue(original: Method) -> Method:
    """Book that a request waits, for the first time or after it was retracted."""

    @functools.wraps(original)
    def _add_request_to_queue(self: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        note_queued(self, req, is_retracted=bool(args[0] if args else kwargs.get("is_retracted")))
        return original(self, req, *args, **kwargs)

    return _add_request_to_queue


def wrap_queue_limit(original: Method) -> Method:
    """Book whom a full queue turned away: the new request, or one that gave way to it."""

    @functools.wraps(original)
    def _abort_on_queued_limit(self: Any, recv_req: Any, *args: Any, **kwargs: Any) -> Any:
        before = list_waiting(self) if is_queue_full(self) else ()
        is_refused = original(self, recv_req, *args, **kwargs)
        if is_refused:
            note_gone(self, [recv_req])
        else:
            note_vanished(self, before)
        return is_refused

    return _abort_on_queued_limit


def wrap_abort(original: Method) -> Method:
    """Book whom an abort took out of the queue; one that runs ends with its next result."""

    @functools.wraps(original)
    def abort_request(self: Any, recv_req: Any, *args: Any, **kwargs: Any) -> Any:
        before = list_waiting(self)
        try:
            return original(self, recv_req, *args, **kwargs)
        finally:
            note_vanished(self, before)

    return abort_request


def wrap_plan(original: Method) -> Method:
    """Note when the scheduler begins to look for a batch, and when it finds none."""

    @functools.wraps(original)
    def get_next_batch_to_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        note_plan(self)
        plan = original(self, *args, **kwargs)
        if plan is None or getattr(plan, "batch_to_run", plan) is None:
            note_idle(self)
        return plan

    return get_next_batch_to_run


def wrap_run(original: Method) -> Method:
    """Book a batch's launch."""

    @functools.wraps(original)
    def run_batch(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        begin_batch(self, batch)
        result = None
        try:
            result = original(self, batch, *args, **kwargs)
        finally:
            end_batch(self, result)
        return result

    return run_batch


def wrap_result(original: Method) -> Method:
    """Book a batch's result once SGLang has taken it in: before that it may still be on the device."""

    @functools.wraps(original)
    def process_batch_result(self: Any, batch: Any, result: Any, *args: Any, **kwargs: Any) -> Any:
        begin_ns = time.monotonic_ns()
        returned = original(self, batch, result, *args, **kwargs)
        note_result(self, batch, result, begin_ns)
        return returned

    return process_batch_result


def wrap_transferred(original: Method) -> Method:
    """Book the ends of requests whose cache went to the engine that decodes them."""

    @functools.wraps(original)
    def process_disagg_prefill_inflight_queue(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = original(self, *args, **kwargs)
        if done:
            note_gone(self, done)
        return done

    return process_disagg_prefill_inflight_queue


def wrap_forward(original: Method) -> Method:
    """Time the device's work on the stream that it is launched on."""

    @functools.wraps(original)
    def forward_batch_generation(*args: Any, **kwargs: Any) -> Any:
        global _open_watch  # noqa: PLW0603
        watch, _open_watch = _open_watch, None  # a forward within a forward is part of it
        if watch is None:
            return original(*args, **kwargs)
        watch.begin_device()
        try:
            return original(*args, **kwargs)
        finally:
            watch.end_device()
            _open_watch = watch

    return forward_batch_generation


@quiet("sglang", None)
def note_arrival(scheduler: Any, recv_req: Any) -> None:
    """See RequestLives.note_arrival."""
    book = find_book(scheduler)
    if book is not None and book.is_speaker:
        book.requests.note_arrival(recv_req.rid, time.monotonic_ns())


@quiet("sglang", None)
def note_queued(scheduler: Any, req: Any, *, is_retracted: bool) -> None:
    """See RequestLives.note_queued and note_retracted."""
    book = find_book(scheduler)
    if book is None or not book.is_speaker:
        return
    if is_retracted:
        book.note_retracted(req)
    else:
        book.requests.note_queued(req, time.monotonic_ns())


@quiet("sglang", False)
def is_queue_full(scheduler: Any) -> bool:
    """Tell whether one more has to wait outside or take another's place; asked for each request."""
    bound = getattr(scheduler, "max_queued_requests", None)
    return bound is not None and len(scheduler.waiting_queue) >= bound


@quiet("sglang", ())
def list_waiting(scheduler: Any) -> tuple[Any, ...]:
    """Return who waits, where that is of use."""
    book = find_book(scheduler)
    return tuple(scheduler.waiting_queue) if book is not None and book.is_speaker else ()


@quiet("sglang", None)
def note_vanished(scheduler: Any, before: Any) -> None:
    """Book those of `before` that wait no more."""
    if len(scheduler.waiting_queue) < len(before):  # else there is nobody to look for in a long queue
        waiting = {req.rid for req in scheduler.waiting_queue}
        note_gone(scheduler, [req for req in before if req.rid not in waiting])


@quiet("sglang", None)
def note_gone(scheduler: Any, reqs: Any) -> None:
    """See SchedulerBook.note_gone."""
    book = find_book(scheduler)
    if book is not None and book.is_speaker:
        book.note_gone(reqs)


@quiet("sglang", None)
def note_plan(scheduler: Any) -> None:
    """See SchedulerBook.note_plan."""
    book = find_book(scheduler)
    if book is not None:
        book.note_plan(time.monotonic_ns())


@quiet("sglang", None)
def note_idle(scheduler: Any) -> None:
    """See SchedulerBook.note_idle."""
    book = find_book(scheduler)
    is_idle = getattr(scheduler, "is_fully_idle", None) or getattr(scheduler, "_is_no_request", None)
    if book is not None and book.is_speaker and is_idle is not None:
        book.note_idle(is_idle)


@quiet("sglang", None)
def begin_batch(scheduler: Any, batch: Any) -> None:
    """See SchedulerBook.begin_batch."""
    global _open_watch  # noqa: PLW0603
    book = find_book(scheduler)
    if book is not None:
        book.begin_batch(batch)
        _open_watch = book.watch


@quiet("sglang", None)
def end_batch(scheduler: Any, result: Any) -> None:
    """See SchedulerBook.end_batch."""
    global _open_watch  # noqa: PLW0603
    _open_watch = None
    book = find_book(scheduler)
    if book is not None:
        book.end_batch(result)


@quiet("sglang", None)
def note_result(scheduler: Any, batch: Any, result: Any, begin_ns: int) -> None:
    """See SchedulerBook.note_result."""
    book = find_book(scheduler)
    if book is not None and book.is_speaker:
        book.note_result(batch, result, begin_ns)


def find_book(scheduler: Any) -> SchedulerBook | None:
    """Return the book of this scheduler; None while nothing is recorded."""
    run = current_run()
    book: SchedulerBook | None = scheduler.__dict__.get(_BOOK_ATTRIBUTE)
    if book is not None and book.run is run:
        return book
    if run is None:
        if _ENTERED_ATTRIBUTE in scheduler.__dict__:
            return None  # asleep: whoever wakes this process gives it a run
        setattr(scheduler, _ENTERED_ATTRIBUTE, True)
        run = enter_scheduler(scheduler.server_args, read_place(scheduler))
        if run is None:
            return None
    place = read_place(scheduler)
    book = SchedulerBook(scheduler, run, place, has_front_end=bool(os.environ.get(FRONT_VARIABLE)))
    setattr(scheduler, _BOOK_ATTRIBUTE, book)
    return book


def read_place(scheduler: Any) -> RankPlace:
    """Return where this process stands; inside a replica for attention, `tp` counts within it."""
    find_parallel = getattr(sys.modules.get(_CONTEXT), "get_parallel", None)
    source = scheduler if find_parallel is None else find_parallel()
    tp = _read_rank(source, "tp_rank")
    pp = _read_rank(source, "pp_rank")
    return RankPlace(
        rank=pp * max(int(getattr(scheduler.server_args, "tp_size", 1)), 1) + tp,
        tp=_read_rank(source, "attn_tp_rank", tp),
        pp=pp,
        dp=_read_replica(source, scheduler.server_args),
        cp=_read_rank(source, "attn_cp_rank"),
        ep=_read_rank(source, "moe_ep_rank"),
    )


def _read_replica(source: Any, server_args: Any) -> int:
    """Return which of all schedulers that plan on their own this is; each has another number."""
    group, replica = _read_rank(source, "attn_dp_rank"), _read_rank(source, "dp_rank")
    groups = getattr(server_args, "attn_dp_size", None)
    # Before there was such a size, `dp_rank` named the group where attention alone was data parallel.
    return group or replica if groups is None else replica * int(groups) + group


def _read_rank(source: Any, name: str, default: int = 0) -> int:
    try:
        value = getattr(source, name, None)
    except Exception:  # noqa: BLE001  SGLang raises where a rank has not been told yet
        value = None
    return default if value is None else int(value)
