# What a model may learn from.
import numpy as np

from otel_llmprism.model.steps import PauseTable, StepTable
from otel_llmprism.native.ring_codes import Mode
from otel_llmprism.service.sentinel.lessons import WARM_UP_STEPS, Lessons
from otel_llmprism.service.sentinel.work import build_work, select_charted
from otel_llmprism.testing.made_ledger import START_NS, MadeLedger, make_empty

NO_PAUSE = make_empty(PauseTable)
FOREVER = START_NS + 3600 * 10**9


def count_lessons(steps: StepTable, pauses: PauseTable, lessons: Lessons | None = None) -> int:
    lessons = lessons or Lessons()
    rows = select_charted(steps)
    lessons.add(steps, rows, build_work(steps, rows), pauses)
    return sum(len(lesson.time_ns) for lesson in lessons.take_ripe(FOREVER))


def test_the_warm_up_of_a_run_teaches_nothing() -> None:
    steps = MadeLedger(seconds=10).make_steps()
    assert count_lessons(steps, NO_PAUSE) == len(steps) - WARM_UP_STEPS


def test_deep_dives_teach_nothing() -> None:
    steps = MadeLedger(seconds=10).make_steps()
    steps.mode[100:150] = Mode.DEEP
    assert count_lessons(steps, NO_PAUSE) == len(steps) - WARM_UP_STEPS - 50


def test_steps_round_a_pause_teach_nothing() -> None:
    steps = MadeLedger(seconds=10).make_steps()
    at = np.array([START_NS + 5 * 10**9], np.uint64)
    pauses = PauseTable(at, at + np.uint64(10**9), np.ones(1, np.uint8))
    left = count_lessons(steps, NO_PAUSE) - count_lessons(steps, pauses)
    after = (steps.output_ready_ns >= at[0]) & (steps.schedule_start_ns <= at[0] + np.uint64(3 * 10**9))
    assert left == int(after.sum())


def test_what_came_after_the_onset_of_a_finding_is_taken_back() -> None:
    lessons, steps = Lessons(), MadeLedger(seconds=10).make_steps()
    rows = select_charted(steps)
    lessons.add(steps, rows, build_work(steps, rows), NO_PAUSE)
    onset_ns = START_NS + 6 * 10**9
    lessons.block(onset_ns)
    (lesson,) = lessons.take_ripe(FOREVER)
    assert int(lesson.time_ns.max()) < onset_ns
    lessons.free(FOREVER)
    assert count_lessons(steps, NO_PAUSE, lessons) == 0  # all of it is from before the end


def test_what_is_young_waits() -> None:
    lessons, steps = Lessons(), MadeLedger(seconds=10).make_steps()
    rows = select_charted(steps)
    lessons.add(steps, rows, build_work(steps, rows), NO_PAUSE)
    assert lessons.take_ripe(int(steps.output_ready_ns[-1]) + 10**9) == []
    assert len(lessons.list_waiting()) == 1
