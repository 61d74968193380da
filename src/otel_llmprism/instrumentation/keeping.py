# Which steps become spans at random: on average one a second and engine, decided at schedule time, so
# that the decision can travel with the step id. Time comes in as an argument.
from typing import NamedTuple

from otel_llmprism.model.ids import derive_step_trace_id, is_kept_at_random
from otel_llmprism.native.ring_records import Kept

_SECOND_NS = 1_000_000_000


class StepTicket(NamedTuple):
    """What travels with a step from the scheduler to workers and ledger."""

    step_id: int
    kept: int  # ring_records.Kept
    probability: float


class StepKeeper:
    """Numbers the steps of one run from 0 and decides for each at once. One thread."""

    def __init__(self, engine_id: str, run: bytes, steps: str) -> None:
        self._engine_id = engine_id
        self._run = run
        self._steps = steps
        self._next_step = 0
        self._second = -1
        self._in_second = 0
        self._in_previous = 0

    def admit_step(self, now_ns: int) -> StepTicket:
        """Give the next step its id and decide whether it is kept."""
        step_id = self._next_step
        self._next_step += 1
        if self._steps != "sample":
            return StepTicket(step_id, *((Kept.ALL, 1.0) if self._steps == "all" else (Kept.NO, 0.0)))
        second = now_ns // _SECOND_NS
        if second != self._second:
            self._in_previous = self._in_second if second == self._second + 1 else 0
            self._second, self._in_second = second, 0
        self._in_second += 1
        probability = 1.0 / self._in_previous if self._in_previous > 1 else 1.0
        trace_id = derive_step_trace_id(self._engine_id, self._run, step_id)
        kept = Kept.RANDOM if is_kept_at_random(trace_id, probability) else Kept.NO
        return StepTicket(step_id, kept, probability)
