# What we keep beside one of SGLang's schedulers, which runs in every rank: the rank that speaks for the
# engine books steps and requests, every rank books its own part. All ranks know a step by the scheduler's own
# count of its forward passes.
import time
from collections.abc import Callable
from typing import Any

from otel_llmprism.instrumentation.engine_run import EngineRun
from otel_llmprism.instrumentation.frameworks.sglang.batch import BatchWork, read_batch
from otel_llmprism.instrumentation.frameworks.sglang.request_lives import RequestLives
from otel_llmprism.instrumentation.keeping import StepTicket
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.rank_watch import RankWatch
from otel_llmprism.instrumentation.step_records import EngineState
from otel_llmprism.native.ring_records import UNKNOWN_NS, Finish, Mode

ABORTED = Finish.ABORT
MAX_OPEN_STEPS = 64  # launched, result not back; pipelines have as many as stages
_IDLE_CHECK_NS = 1_000_000_000


class SchedulerBook:
    """Called by the scheduler's thread alone."""

    def __init__(self, scheduler: Any, run: EngineRun, place: RankPlace, *, has_front_end: bool) -> None:
        self.run = run
        self.is_speaker = place.tp == place.pp == place.cp == 0
        self.requests = RequestLives(run.requests, has_front_end=has_front_end)
        self.watch = RankWatch(run.build_rank_recorder(place))
        self._scheduler = scheduler
        self._plan_ns = 0
        self._idle_checked_ns = 0
        self._started_ns = 0
        self._step = -1  # the one whose launch is under way
        self._open: dict[int, tuple[StepTicket, Any]] = {}  # with the result that will come back

    def note_plan(self, now_ns: int) -> None:
        """Take that the scheduler begins to look for a batch."""
        self._plan_ns = now_ns

    def begin_batch(self, batch: Any) -> None:
        """Book a batch that is about to be launched."""
        now_ns = self._started_ns = time.monotonic_ns()
        work = read_batch(batch)
        self._step = -1
        if work is None:
            return
        self._step = int(self._scheduler.forward_ct)  # run_batch counts itself next
        is_deep = self.run.mode is Mode.DEEP
        if self.is_speaker:
            is_deep = self._record_scheduled(work, now_ns) or is_deep
        self.watch.begin(self._step, is_deep=is_deep, is_on_stream=False)

    def end_batch(self, result: Any) -> None:
        """Book that it was launched; its result comes later, in another call."""
        step, self._step = self._step, -1
        if step < 0:
            return
        self.watch.end(step, self._started_ns, time.monotonic_ns())
        if step in self._open:
            self._open[step] = self._open[step][0], result

    def note_result(self, batch: Any, result: Any, begin_ns: int) -> None:
        """Book that a batch's result is back and taken in."""
        now_ns = time.monotonic_ns()
        ticket = self._take_ticket(batch, result)
        step = ticket.step_id if ticket is not None else -1
        if ticket is not None:
            self.run.steps.record_output(ticket, now_ns, execute_ns=UNKNOWN_NS, output_ns=now_ns - begin_ns)
        self._take_out(self.requests.note_results(batch.reqs, step, now_ns))

    def note_retracted(self, req: Any) -> None:
        """Take a running request back to the queue."""
        self.requests.note_retracted(req)
        self._take_out([req.rid])

    def note_gone(self, reqs: list[Any]) -> None:
        """Book requests that left the queue without having run, or whose end SGLang tells apart."""
        now_ns = time.monotonic_ns()
        for req in reqs:
            finish = None if req.finished_reason is not None else ABORTED
            self._take_out(self.requests.note_ended([req], now_ns, finish))

    def note_idle(self, is_idle: Callable[[], bool]) -> None:
        """End what lives when the scheduler has nothing left; asked once a second at most."""
        now_ns = time.monotonic_ns()
        if not len(self.requests) or now_ns - self._idle_checked_ns < _IDLE_CHECK_NS:
            return
        self._idle_checked_ns = now_ns
        if is_idle():
            self._take_out(self.requests.end_left(now_ns))

    def _record_scheduled(self, work: BatchWork, now_ns: int) -> bool:
        retracted = self.requests.note_scheduled(work, self._step, now_ns)
        self.run.keeper.skip_to(self._step)
        ticket = self.run.steps.record_scheduled(
            work.tokens,
            work.prefill,
            read_state(self._scheduler, work, retracted),
            min(self._plan_ns or now_ns, now_ns),
            now_ns,
            prefill_tokens=work.prefill_tokens,
        )
        self._plan_ns = 0
        if ticket.step_id >= 0:
            while len(self._open) >= MAX_OPEN_STEPS:
                del self._open[next(iter(self._open))]
            self._open[ticket.step_id] = ticket, None
        return ticket.mode == Mode.DEEP

    def _take_ticket(self, batch: Any, result: Any) -> StepTicket | None:
        # A batch is copied on its way; since 0.5.2x the copy has its number, before that only the result is
        # the same object. Pipelines make their results anew: there the order tells.
        number = getattr(batch, "forward_iter", None)
        if isinstance(number, int):
            return self._open.pop(number - 1, (None, None))[0]
        if batch.forward_mode.name in ("IDLE", "PREBUILT"):
            return None
        for step, (_, known) in self._open.items():
            if known is result:
                return self._open.pop(step)[0]
        return self._open.pop(next(iter(self._open)))[0] if self._open else None

    def _take_out(self, rids: list[str]) -> None:
        if rids:
            self.run.steps.record_left(rids)


def read_state(scheduler: Any, work: BatchWork, preemptions: int) -> EngineState:
    """Return what the scheduler knows beside the batch."""
    running = getattr(scheduler.running_batch, "reqs", None)
    return EngineState(
        waiting=len(scheduler.waiting_queue),
        running=max(len(running or ()), len(work.tokens)),
        preemptions=preemptions,
        kv_tokens=work.kv_tokens,
        kv_usage=_read_usage(scheduler),
    )


def _read_usage(scheduler: Any) -> float:
    capacity = getattr(scheduler, "max_total_num_tokens", 0)
    try:
        free = scheduler.token_to_kv_pool_allocator.available_size() + scheduler.tree_cache.evictable_size()
        return min(max(1.0 - float(free) / capacity, 0.0), 1.0)
    except Exception:  # noqa: BLE001  caches of several kinds count in ways of their own
        return 0.0
