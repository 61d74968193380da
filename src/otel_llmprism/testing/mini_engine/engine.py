# The engine's loop: take requests, plan a step, compute it on all ranks, hand out tokens. It calls the
# record API at the places where a real engine is hooked, and keeps its own book beside it.
import time
from collections.abc import Callable
from dataclasses import dataclass

from otel_llmprism.instrumentation.engine_run import EngineRun
from otel_llmprism.instrumentation.step_records import EngineState
from otel_llmprism.native.ring_records import Finish, RequestEvent
from otel_llmprism.testing.mini_engine.fault_injector import FaultInjector
from otel_llmprism.testing.mini_engine.fault_schedule import Place
from otel_llmprism.testing.mini_engine.front_end import FrontEnd
from otel_llmprism.testing.mini_engine.messages import Cancel, Submit
from otel_llmprism.testing.mini_engine.rank_group import RankGroup
from otel_llmprism.testing.mini_engine.scheduler import Plan, Scheduler
from otel_llmprism.testing.mini_engine.sequence import Sequence
from otel_llmprism.testing.mini_engine.settings import EngineConfig
from otel_llmprism.testing.mini_engine.token_log import TokenLog
from otel_llmprism.testing.mini_engine.tokenizer import tokenize_text
from otel_llmprism.testing.mini_engine.work import StepWork, build_work
from otel_llmprism.testing.mini_engine.worker import Worker

_IDLE_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class EngineParts:
    config: EngineConfig
    find_run: Callable[[], EngineRun]
    front_end: FrontEnd
    ranks: RankGroup
    worker: Worker
    injector: FaultInjector
    log: TokenLog
    is_stopping: Callable[[], bool]

    @property
    def run(self) -> EngineRun:
        return self.find_run()


def squeeze_cache(scheduler: Scheduler, injector: FaultInjector, now_ns: int) -> None:
    """Withhold KV blocks while a fault says so, and give them back after it."""
    entry = injector.plan.find_entry(Place.KV_CACHE, now_ns) if injector.plan.entries else None
    if entry is not None or scheduler.is_squeezed:
        scheduler.squeeze_cache(entry.intensity if entry else 1.0)


class Engine:
    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._scheduler = Scheduler(parts.config)
        self._sequences: dict[str, Sequence] = {}
        self._steps_of: dict[str, int] = {}
        self._arrivals = 0
        self._own_step = 0  # counted here too, so that the book does not depend on our records

    def run_until_done(self) -> int:
        """Serve until the front end closed and nothing is left; return the number of steps."""
        front_end = self._parts.front_end
        while not self._parts.is_stopping():
            if front_end.is_closed and not self._sequences:
                break
            self._take_messages(wait_s=0.0 if self._sequences else _IDLE_WAIT_S)
            if self._sequences:
                self._run_step()
        return self._own_step

    def _take_messages(self, wait_s: float) -> None:
        for arrived in self._parts.front_end.receive(wait_s):
            message = arrived.message
            if isinstance(message, Submit):
                self._accept(message, arrived.arrived_ns)
            elif isinstance(message, Cancel) and message.request_id in self._sequences:
                self._end(self._sequences[message.request_id], Finish.ABORT)

    def _accept(self, submit: Submit, arrived_ns: int) -> None:
        requests, config = self._parts.run.requests, self._parts.config
        requests.record_arrival(submit.request_id, arrived_ns, submit.traceparent)
        tokens = tokenize_text(submit.prompt, config.shape.vocabulary)
        sequence = Sequence(submit.request_id, tokens, len(tokens), submit.max_tokens, self._arrivals)
        self._arrivals += 1
        self._sequences[submit.request_id] = sequence
        self._steps_of[submit.request_id] = 0
        self._parts.log.write_request("arrived", submit.request_id, prompt=len(tokens))
        if len(tokens) + submit.max_tokens > config.capacity_tokens:
            self._end(sequence, Finish.ERROR)
            return
        self._scheduler.add_sequence(sequence)
        requests.record_event(submit.request_id, RequestEvent.QUEUED, time.monotonic_ns())

    def _run_step(self) -> None:
        start_ns = time.monotonic_ns()
        self._parts.injector.begin_step(start_ns)
        squeeze_cache(self._scheduler, self._parts.injector, start_ns)
        plan = self._scheduler.plan_step()
        self._parts.injector.delay_schedule()
        work = self._record_plan(plan, start_ns, time.monotonic_ns())
        if not plan.shares:
            return
        self._parts.ranks.send_work(work)
        launched_ns = time.monotonic_ns()
        logits = self._parts.worker.run_step(work)
        computed_ns = time.monotonic_ns()
        ids = [share.sequence.request_id for share in plan.shares]
        is_ready = [share.sequence.pending == share.count for share in plan.shares]
        best = logits.argmax(axis=-1).tolist()
        sampled = {name: token for name, token, ready in zip(ids, best, is_ready, strict=True) if ready}
        ready_ns = time.monotonic_ns()
        self._parts.injector.end_step(work.step_id, ready_ns)
        finished = self._book_output(plan, sampled, work.step_id, ready_ns)
        self._parts.run.steps.record_output(
            self._ticket,
            ready_ns,
            execute_ns=computed_ns - launched_ns,
            sample_ns=ready_ns - computed_ns,
            output_ns=time.monotonic_ns() - ready_ns,
        )
        for sequence in finished:
            self._end(sequence, Finish.LENGTH)

    def _record_plan(self, plan: Plan, start_ns: int, end_ns: int) -> StepWork:
        run, scheduler = self._parts.run, self._scheduler
        run.steps.record_left([sequence.request_id for sequence in plan.preempted])
        self._ticket = run.steps.record_scheduled(
            {share.sequence.request_id: share.count for share in plan.shares},
            {share.sequence.request_id for share in plan.shares if share.is_prefill},
            EngineState(
                waiting=len(scheduler.waiting),
                running=len(scheduler.running),
                preemptions=len(plan.preempted),
                kv_tokens=sum(share.start + share.count for share in plan.shares),
                kv_usage=scheduler.kv_usage,
            ),
            start_ns,
            end_ns,
            joined=[sequence.request_id for sequence in plan.joined],
        )
        self._record_moves(plan, end_ns)
        return build_work(plan, self._ticket.step_id, self._ticket.probability, bool(self._ticket.kept))

    def _record_moves(self, plan: Plan, now_ns: int) -> None:
        requests = self._parts.run.requests
        for sequence in plan.preempted:
            requests.record_event(
                sequence.request_id, RequestEvent.PREEMPTED, now_ns, self._ticket.step_id, sequence.computed
            )
        for sequence in plan.joined:
            if self._steps_of[sequence.request_id] == 0:
                requests.record_event(
                    sequence.request_id, RequestEvent.SCHEDULED, now_ns, self._ticket.step_id
                )
        if plan.shares:
            self._parts.log.write_step(self._own_step, plan)
            self._own_step += 1
            for share in plan.shares:
                self._steps_of[share.sequence.request_id] += 1

    def _book_output(
        self, plan: Plan, sampled: dict[str, int], step_id: int, ready_ns: int
    ) -> list[Sequence]:
        first = [s.sequence for s in plan.shares if s.sequence.output_length == 0]
        finished = self._scheduler.advance(plan, sampled)
        for sequence in first:
            if sequence.output_length:
                self._parts.run.requests.record_event(
                    sequence.request_id, RequestEvent.FIRST_TOKEN, ready_ns, step_id
                )
        return finished

    def _end(self, sequence: Sequence, finish: Finish) -> None:
        name = sequence.request_id
        self._scheduler.remove_sequence(sequence)
        del self._sequences[name]
        steps = self._steps_of.pop(name)
        self._parts.run.steps.record_left([name])
        self._parts.run.requests.record_end(
            name,
            time.monotonic_ns(),
            finish,
            prompt_tokens=sequence.prompt_length,
            output_tokens=sequence.output_length,
            steps=steps,
            preemptions=sequence.preemptions,
        )
        self._parts.log.write_request(
            "ended",
            name,
            finish=finish.name.lower(),
            output=sequence.output_length,
            steps=steps,
            preemptions=sequence.preemptions,
        )
        self._parts.front_end.answer(name, finish.name.lower(), sequence.output_length)
