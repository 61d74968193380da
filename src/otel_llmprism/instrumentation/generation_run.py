# What one generate() call becomes: a request, and a step for each forward of its model. Times are taken
# here; counts come in as numbers. Several threads may generate at once. Never raises.
import os
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from otel_llmprism.instrumentation.engine_run import FOLDER_VARIABLE, EngineRun
from otel_llmprism.instrumentation.guard import HookState, NullRing, guarded
from otel_llmprism.instrumentation.keeping import StepTicket
from otel_llmprism.instrumentation.process_run import begin_run, own_run
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.rank_watch import RankWatch
from otel_llmprism.instrumentation.step_records import NO_STEP, EngineState
from otel_llmprism.native.ring_records import Finish, RequestEvent

ENGINE = "transformers"
CURRENT: ContextVar["Generation | None"] = ContextVar("llmprism_generation", default=None)


@dataclass(slots=True)
class Generation:
    """One call of generate() that is under way, all its sequences together."""

    model: Any  # whose forwards count: an assistant's are its own affair
    request_id: str
    lane: int  # calls that run side by side are batches of their own
    prompt_tokens: int
    prompt_length: int = 0  # positions of one sequence before the first that is generated
    steps: int = 0
    ticket: StepTicket = NO_STEP
    forward_ns: int = 0  # when the forward under way began
    has_first_token: bool = False
    is_preparing: bool = False  # inside the model's own preparation, which may call its base's


_NONE = cast("Generation | None", None)


class GenerationRun:
    """One per process: the run that generate() calls are recorded in."""

    def __init__(self) -> None:
        self.hook = HookState("step", NullRing())
        self._lock = threading.Lock()  # held for microseconds
        self._run: EngineRun | None = None
        self._watch: RankWatch | None = None
        self._lanes: set[int] = set()
        self._is_asleep = False  # no run could be begun; whoever wakes this process begins one

    @guarded(_NONE)
    def begin(
        self, model: Any, prompt_tokens: int, traceparent: str, *, model_name: str, version: str
    ) -> Generation | None:
        """Book a call's arrival; None when it is not to be recorded, as in a training or an engine."""
        now_ns = time.monotonic_ns()
        with self._lock:
            run = self._find_run(model_name, version)
            if run is None:
                return None
            lane = next(lane for lane in range(len(self._lanes) + 1) if lane not in self._lanes)
            self._lanes.add(lane)
        generation = Generation(model, f"generate-{os.urandom(8).hex()}", lane, prompt_tokens)
        run.requests.record_arrival(generation.request_id, now_ns, traceparent, is_local_parent=True)
        return generation

    @guarded(None)
    def end_forward(self, generation: Generation, *, has_token: bool) -> None:
        """Book that the forward before is over, if there was one; `has_token`: it gave a first token."""
        run, watch, now_ns = self._run, self._watch, time.monotonic_ns()
        if run is None or watch is None or generation.ticket.step_id < 0:
            return
        step = generation.ticket.step_id
        with self._lock:
            watch.end(step, generation.forward_ns, now_ns)
            run.steps.record_output(generation.ticket, now_ns, execute_ns=now_ns - generation.forward_ns)
        generation.ticket = NO_STEP
        if has_token and not generation.has_first_token:
            generation.has_first_token = True
            run.requests.record_event(generation.request_id, RequestEvent.FIRST_TOKEN, now_ns, step)

    @guarded(None)
    def begin_forward(
        self, generation: Generation, start_ns: int, tokens: int, kv_tokens: int, *, is_prefill: bool
    ) -> None:
        """Book a forward over `tokens` positions that was prepared since `start_ns`."""
        run, watch, now_ns = self._run, self._watch, time.monotonic_ns()
        if run is None or watch is None or tokens <= 0:
            return
        name = generation.request_id
        state = EngineState(running=len(self._lanes), kv_tokens=kv_tokens)
        with self._lock:
            generation.ticket = run.steps.record_scheduled(
                {name: tokens},
                (name,) if is_prefill else (),
                state,
                start_ns,
                now_ns,
                lane=generation.lane,
                joined=(name,) if generation.steps == 0 else (),
            )
            watch.begin(generation.ticket.step_id)
        if generation.steps == 0:
            step = generation.ticket.step_id
            run.requests.record_event(name, RequestEvent.SCHEDULED, start_ns, step)
        generation.steps += 1
        generation.forward_ns = now_ns

    @guarded(None)
    def end(self, generation: Generation, finish: Finish, output_tokens: int) -> None:
        """Book the call's end."""
        self.end_forward(generation, has_token=output_tokens > 0)
        with self._lock:
            self._lanes.discard(generation.lane)
            if self._run is None:
                return
            self._run.steps.record_left((generation.request_id,))
            if self._watch is not None and not self._lanes:
                self._watch.flush()
        self._run.requests.record_end(
            generation.request_id,
            time.monotonic_ns(),
            finish,
            prompt_tokens=generation.prompt_tokens,
            output_tokens=output_tokens,
            steps=generation.steps,
        )

    def _find_run(self, model_name: str, version: str) -> EngineRun | None:
        present = own_run()
        if present is not None and present is self._run:
            return present
        if present is None:
            if self._is_asleep or os.environ.get(FOLDER_VARIABLE):
                return None  # nobody woke it; a child of an engine
            present = begin_run(ENGINE, version, model=model_name, ranks=1, environment=dict(os.environ))
            self._is_asleep = present is None
        elif self._run is not None or not _is_unclaimed(present):
            return None  # an engine's or a training's
        if present is not None:
            self._run, self._watch = present, RankWatch(present.build_rank_recorder(RankPlace(0)))
        return present

    def reset(self) -> None:
        """Begin with nothing: what a forked child has to do."""
        self.__init__()  # type: ignore[misc]


def _is_unclaimed(run: EngineRun) -> bool:
    """Tell whether it was begun by waking this process, and nobody records in it yet."""
    is_of_ours = run.description is not None and run.description.engine_name == ENGINE
    return is_of_ours and all(hook.name != "rank" for hook in run.hooks)


GENERATIONS = GenerationRun()
os.register_at_fork(after_in_child=GENERATIONS.reset)
