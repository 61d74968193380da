# vLLM's worker: one rank's part of a step, from the scheduler's output until it is sampled. The step is known
# by the ticket on the scheduler's output; what has none (warm-up, dummy runs) is not ours.
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from otel_llmprism.instrumentation.frameworks.vllm.scheduler_book import (
    HOST_TIMES_ATTRIBUTE,
    TICKET_ATTRIBUTE,
)
from otel_llmprism.instrumentation.process_run import current_run, join_run
from otel_llmprism.instrumentation.quiet import quiet
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.rank_watch import RankWatch
from otel_llmprism.native.ring_records import UNKNOWN_NS, Kept

_ROLE = "worker"
_PARALLEL_STATE = "vllm.distributed.parallel_state"
_BOOK_ATTRIBUTE = "_llmprism_book"


class WorkerBook:
    """One per worker; called by the thread that runs its steps."""

    def __init__(self, watch: RankWatch) -> None:
        self._watch = watch
        self._step = -1  # the one that is open
        self._output: Any = None
        self._start_ns = self._end_ns = 0

    def begin_step(self, output: Any) -> None:
        """Open a step; one that nobody sampled is over by now."""
        self._end_step()
        ticket = getattr(output, TICKET_ATTRIBUTE, None)
        if ticket is None:
            return
        self._step, self._output, self._start_ns = ticket[0], output, time.monotonic_ns()
        self._watch.begin(ticket[0], is_deep=ticket[1] == Kept.DEEP)

    def note_executed(self, *, is_done: bool) -> None:
        """Take the forward pass as launched; without a result yet the step goes on with its sampling."""
        if self._step < 0:
            return
        self._end_ns = time.monotonic_ns()
        self._tell_host_times(self._end_ns - self._start_ns, UNKNOWN_NS)
        if is_done:
            self._end_step()

    def note_sampled(self, start_ns: int) -> None:
        """Take the step as sampled, which ends it."""
        if self._step < 0:
            return
        now_ns = time.monotonic_ns()
        self._tell_host_times(self._end_ns - self._start_ns, now_ns - start_ns)
        self._end_ns = now_ns
        self._end_step()

    def _end_step(self) -> None:
        step, self._step, self._output = self._step, -1, None
        if step >= 0:
            self._watch.end(step, self._start_ns, self._end_ns)

    def _tell_host_times(self, execute_ns: int, sample_ns: int) -> None:
        # The scheduler sees this only where it lives in the same process, on the same object.
        setattr(self._output, HOST_TIMES_ATTRIBUTE, (execute_ns, sample_ns))


def wrap_execute_model(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book the forward pass."""

    @functools.wraps(original)
    def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        begin_step(self, scheduler_output)
        result = None
        try:
            result = original(self, scheduler_output, *args, **kwargs)
        finally:
            note_executed(self, result)
        return result

    return execute_model


def wrap_sample_tokens(original: Callable[..., Any]) -> Callable[..., Any]:
    """Book the sampling, a second call for the same step."""

    @functools.wraps(original)
    def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        start_ns = time.monotonic_ns()
        try:
            return original(self, *args, **kwargs)
        finally:
            note_sampled(self, start_ns)

    return sample_tokens


@quiet("vllm", None)
def begin_step(worker: Any, output: Any) -> None:
    """See WorkerBook.begin_step."""
    book = _find_book(worker)
    if book is not None:
        book.begin_step(output)


@quiet("vllm", None)
def note_executed(worker: Any, result: Any) -> None:
    """See WorkerBook.note_executed."""
    book: WorkerBook | None = worker.__dict__.get(_BOOK_ATTRIBUTE)
    if book is not None:
        is_done = result is not None or not hasattr(type(worker), "sample_tokens")
        book.note_executed(is_done=is_done)


@quiet("vllm", None)
def note_sampled(worker: Any, start_ns: int) -> None:
    """See WorkerBook.note_sampled."""
    book: WorkerBook | None = worker.__dict__.get(_BOOK_ATTRIBUTE)
    if book is not None:
        book.note_sampled(start_ns)


def read_place(worker: Any) -> RankPlace:
    """Return where this worker stands; a kind of parallelism that its vLLM does not know is 0."""
    return RankPlace(
        rank=int(worker.rank),
        tp=_read_rank("get_tp_group"),
        pp=_read_rank("get_pp_group"),
        dp=_read_rank("get_dp_group"),
        cp=_read_rank("get_pcp_group"),
        ep=_read_rank("get_ep_group"),
    )


def _find_book(worker: Any) -> WorkerBook | None:
    book: WorkerBook | None = worker.__dict__.get(_BOOK_ATTRIBUTE)
    if book is None:
        run = current_run() or join_run(_ROLE)
        if run is None:
            return None
        book = WorkerBook(RankWatch(run.build_rank_recorder(read_place(worker))))
        setattr(worker, _BOOK_ATTRIBUTE, book)
    return book


def _read_rank(name: str) -> int:
    find_group = getattr(sys.modules.get(_PARALLEL_STATE), name, None)
    if find_group is None:
        return 0
    try:
        return int(find_group().rank_in_group)
    except Exception:  # noqa: BLE001  vLLM asserts that there is such a group
        return 0
