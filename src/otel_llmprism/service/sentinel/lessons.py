# Which steps a model may learn from. What is inside an open finding, in a deep-dive, in the warm-up of a run
# or round a pause is left out; what is merely flagged stays, or the tails would shrink and alarms breed.
from collections import deque
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.steps import U64, PauseTable, StepTable
from otel_llmprism.model.work import WorkTable
from otel_llmprism.service.sentinel.work import Rows, find_undisturbed, take_rows

WARM_UP_STEPS = 50
_SETTLE_NS = 2_000_000_000  # after a pause
# A finding opens some seconds after its onset; what is learned from waits that long.
_DELAY_NS = 15_000_000_000
_MAX_WAITING = 50_000  # steps


@dataclass(frozen=True, slots=True)
class Lesson:
    work: WorkTable
    step: U64
    cycle_ns: U64
    time_ns: U64


class Lessons:
    """Steps on their way into the sample. Times are those of the node."""

    def __init__(self) -> None:
        self._waiting: deque[Lesson] = deque()
        self._count = 0
        self._seen = 0
        self._blocked_since_ns: int | None = None
        self._free_since_ns = 0

    def add(self, steps: StepTable, rows: Rows, work: WorkTable, pauses: PauseTable) -> None:
        """Take the charted rows of a batch."""
        fine = find_undisturbed(steps, rows, pauses, _SETTLE_NS)
        fine &= np.arange(self._seen, self._seen + len(rows)) >= WARM_UP_STEPS
        self._seen += len(rows)
        ready = steps.output_ready_ns[rows]
        if self._blocked_since_ns is not None:
            fine &= ready < self._blocked_since_ns
        fine &= ready >= self._free_since_ns
        own = take_rows(work, fine)
        if len(own.kind) and self._count < _MAX_WAITING:
            self._waiting.append(Lesson(own, steps.step[rows][fine], steps.cycle_ns[rows][fine], ready[fine]))
            self._count += len(own.kind)

    def block(self, since_ns: int) -> None:
        """A finding is open: nothing from its onset on is learned."""
        if self._blocked_since_ns is None or since_ns < self._blocked_since_ns:
            self._blocked_since_ns = since_ns
            kept = [_cut_before(lesson, since_ns) for lesson in self._waiting]
            self._waiting = deque(lesson for lesson in kept if len(lesson.time_ns))
            self._count = sum(len(lesson.time_ns) for lesson in self._waiting)

    def free(self, now_ns: int) -> None:
        """No finding is open any more."""
        if self._blocked_since_ns is not None:
            self._blocked_since_ns, self._free_since_ns = None, now_ns

    def list_waiting(self) -> list[Lesson]:
        """Return what nothing has learned from yet."""
        return list(self._waiting)

    def take_ripe(self, now_ns: int) -> list[Lesson]:
        """Return what is old enough to be sure of."""
        ripe = []
        while self._waiting and int(self._waiting[0].time_ns[-1]) + _DELAY_NS <= now_ns:
            ripe.append(self._waiting.popleft())
            self._count -= len(ripe[-1].time_ns)
        return ripe


def _cut_before(lesson: Lesson, time_ns: int) -> Lesson:
    is_before = lesson.time_ns < time_ns
    columns = (lesson.step[is_before], lesson.cycle_ns[is_before], lesson.time_ns[is_before])
    return Lesson(take_rows(lesson.work, is_before), *columns)
