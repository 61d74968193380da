# Activities of a training thread become iterations: boundaries, phases that never overlap, pauses.
import pytest

from otel_llmprism.instrumentation.iteration_clock import Activity, Iteration, IterationClock, PauseSpan
from otel_llmprism.native.ring_records import UNKNOWN_NS, Pause

MS = 1_000_000


class Thread:
    """Does things that take so long; the clock sees each."""

    def __init__(self) -> None:
        self.clock = IterationClock()
        self.now_ns = 1_000 * MS
        self.ended: list[Iteration] = []

    def wait(self, duration_ms: float) -> None:
        self.now_ns += round(duration_ms * MS)

    def enter(self, activity: Activity) -> None:
        self.clock.enter(activity, self.now_ns)

    def leave(self, stepped: object = None, pause: Pause = Pause.UNKNOWN) -> None:
        ended = self.clock.leave(self.now_ns, stepped=stepped, pause=pause)
        if ended is not None:
            self.ended.append(ended)

    def spend(
        self,
        activity: Activity,
        duration_ms: float,
        stepped: object = None,
        pause: Pause = Pause.UNKNOWN,
    ) -> None:
        self.enter(activity)
        self.wait(duration_ms)
        self.leave(stepped, pause)

    def train(self, optimizer: object = "main", *, micro_batches: int = 1) -> None:
        for _ in range(micro_batches):
            self.spend(Activity.DATA, 2)
            self.wait(3)
            self.spend(Activity.BACKWARD, 5)
        self.spend(Activity.OPTIMIZER, 1, optimizer)


@pytest.fixture
def thread() -> Thread:
    return Thread()


def test_an_iteration_lasts_from_one_optimizer_step_to_the_next(thread: Thread) -> None:
    thread.train()
    thread.wait(7)
    thread.train()
    first, second = thread.ended
    assert second.start_ns == first.end_ns
    assert second.end_ns - second.start_ns == 18 * MS
    assert (second.data_ns, second.forward_ns) == (2 * MS, 3 * MS)
    assert (second.backward_ns, second.optimizer_ns) == (5 * MS, 1 * MS)
    assert second.number == UNKNOWN_NS


def test_the_first_iteration_begins_with_its_own_data(thread: Thread) -> None:
    thread.spend(Activity.DATA, 2)  # somebody looked at a batch an hour ago
    thread.wait(3_600_000)
    thread.train()
    assert thread.ended[0].end_ns - thread.ended[0].start_ns == 11 * MS
    assert thread.ended[0].data_ns == 2 * MS


def test_accumulated_micro_batches_are_one_iteration(thread: Thread) -> None:
    thread.train(micro_batches=4)
    thread.train(micro_batches=4)
    assert [one.micro_batches for one in thread.ended] == [4, 4]
    assert thread.ended[1].forward_ns == 12 * MS


def test_several_optimizers_make_one_iteration(thread: Thread) -> None:
    for _ in range(3):
        thread.train("generator")
        thread.train("critic")
    assert len(thread.ended) == 3
    assert thread.ended[1].micro_batches == 2


def test_an_optimizer_that_goes_on_alone_becomes_the_main_one(thread: Thread) -> None:
    thread.train("warm-up")
    for _ in range(4):
        thread.train("main")
    assert len(thread.ended) == 1 + 3  # one of them was lost to finding out


def test_an_optimizer_inside_another_is_no_step_of_its_own(thread: Thread) -> None:
    for _ in range(2):
        thread.spend(Activity.BACKWARD, 5)
        thread.enter(Activity.OPTIMIZER)
        thread.spend(Activity.OPTIMIZER, 1, "inner")
        thread.wait(2)
        thread.leave("outer")
    assert [one.optimizer_ns for one in thread.ended] == [3 * MS, 3 * MS]


def test_a_step_whose_gradients_overflowed_is_an_iteration_too(thread: Thread) -> None:
    thread.spend(Activity.BACKWARD, 5)
    thread.spend(Activity.OPTIMIZER, 1, ("scaler", 1))  # the scaler ran no optimizer inside
    assert len(thread.ended) == 1


def test_a_step_inside_a_backward_pass_ends_the_iteration_after_it(thread: Thread) -> None:
    thread.enter(Activity.BACKWARD)
    thread.spend(Activity.OPTIMIZER, 1, "layer")
    thread.wait(4)
    assert not thread.ended
    thread.leave()
    assert thread.ended[0].backward_ns == 4 * MS
    assert thread.ended[0].optimizer_ns == 1 * MS


def test_a_backward_pass_inside_another_is_no_micro_batch(thread: Thread) -> None:
    thread.enter(Activity.BACKWARD)
    thread.spend(Activity.BACKWARD, 1)  # a recomputed segment
    thread.leave()
    thread.spend(Activity.OPTIMIZER, 1, "main")
    assert thread.ended[0].micro_batches == 1


def test_a_closure_that_runs_in_a_step_is_taken_off_the_optimizers_time(thread: Thread) -> None:
    thread.enter(Activity.OPTIMIZER)
    for _ in range(3):
        thread.wait(1)
        thread.spend(Activity.BACKWARD, 5)
    thread.leave("lbfgs")
    (ended,) = thread.ended
    assert (ended.optimizer_ns, ended.backward_ns, ended.micro_batches) == (3 * MS, 15 * MS, 3)


def test_a_frameworks_own_train_step_is_the_iteration_whatever_steps_in_it(thread: Thread) -> None:
    for optimizers in (["a", "a", "b"], [], ["b"]):
        thread.enter(Activity.ITERATION)
        thread.spend(Activity.FORWARD, 3)
        thread.wait(2)  # a send to the next stage is no forward
        thread.spend(Activity.BACKWARD, 5)
        for optimizer in optimizers:
            thread.spend(Activity.OPTIMIZER, 1, optimizer)
        thread.leave()
    assert len(thread.ended) == 3
    assert [one.forward_ns for one in thread.ended] == [3 * MS] * 3


def test_a_checkpoint_and_what_is_inside_it_is_one_pause_and_no_phase(thread: Thread) -> None:
    thread.train()
    start_ns = thread.now_ns
    thread.enter(Activity.PAUSE)
    thread.wait(4)
    thread.spend(Activity.DATA, 3)
    thread.spend(Activity.PAUSE, 3)
    thread.leave(pause=Pause.CHECKPOINT)
    thread.train()
    ended = thread.ended[1]
    assert ended.pauses == (PauseSpan(start_ns, start_ns + 10 * MS, Pause.CHECKPOINT),)
    assert (ended.data_ns, ended.forward_ns) == (2 * MS, 3 * MS)


def test_evaluation_mode_and_back_is_a_pause(thread: Thread) -> None:
    thread.train()
    start_ns = thread.now_ns
    thread.clock.guess_evaluation(start_ns)
    thread.spend(Activity.DATA, 30)
    thread.clock.settle_evaluation(thread.now_ns, was_pause=True)
    thread.train()
    assert thread.ended[1].pauses == (PauseSpan(start_ns, start_ns + 30 * MS, Pause.EVALUATION),)
    assert thread.ended[1].data_ns == 2 * MS


def test_a_part_that_stays_in_evaluation_mode_is_no_pause(thread: Thread) -> None:
    thread.train()
    thread.clock.guess_evaluation(thread.now_ns)
    thread.train()
    thread.clock.settle_evaluation(thread.now_ns, was_pause=True)
    assert thread.ended[1].pauses == ()
    assert thread.ended[1].data_ns == 2 * MS


def test_what_lies_between_two_trainings_is_no_part_of_a_step(thread: Thread) -> None:
    thread.train()
    start_ns = thread.now_ns
    thread.wait(3_600_000)
    thread.clock.note_restart(thread.now_ns)
    thread.train()
    assert thread.ended[1].pauses == (PauseSpan(start_ns, start_ns + 3_600_000 * MS, Pause.UNKNOWN),)
    assert thread.ended[1].forward_ns == 3 * MS


def test_a_thousand_small_pauses_are_a_few(thread: Thread) -> None:
    thread.train()
    for _ in range(1000):
        thread.spend(Activity.PAUSE, 2, pause=Pause.CHECKPOINT)
        thread.wait(2)
    thread.train()
    assert len(thread.ended[1].pauses) == 32
    assert thread.ended[1].end_ns > thread.ended[1].start_ns
