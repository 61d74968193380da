# What the training thread does when, as entered and left activities -> iterations with the host time of
# each phase. Pure: every time is an argument. Phases never overlap: time goes to the innermost activity.
from enum import IntEnum
from typing import NamedTuple

from otel_llmprism.native.ring_records import UNKNOWN_NS, Pause

MIN_PAUSE_NS = 1_000_000  # shorter ones are no pause: modes are also switched inside an iteration
_MAX_PAUSES = 32  # in one iteration
_MAX_OTHERS = 4096  # optimizers beside the main one
_EMPTY = (0, 0, 0, 0)


class Activity(IntEnum):
    DATA = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    ITERATION = 4  # a framework's own train step: it alone ends the iteration, whatever optimizers do
    PAUSE = 5


class PauseSpan(NamedTuple):
    start_ns: int
    end_ns: int
    reason: Pause


class Iteration(NamedTuple):
    """One training step as its process saw it; `number` is the framework's own."""

    start_ns: int
    end_ns: int
    data_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    micro_batches: int
    number: int
    pauses: tuple[PauseSpan, ...]


class _Guess(NamedTuple):
    """A module went to evaluation mode: whether that is a pause is known later."""

    since_ns: int
    sums: tuple[int, ...]
    micro_batches: int
    pause_count: int


class IterationClock:
    """One per process; one thread at a time."""

    def __init__(self) -> None:
        self.number = UNKNOWN_NS  # set by a framework that numbers its iterations
        self._stack: list[Activity] = []
        self._sums = list(_EMPTY)
        self._start_ns = 0  # of the iteration under way; 0: none was seen yet
        self._mark_ns = 0  # since when the innermost activity has the time
        self._micro_batches = 0
        self._is_first = True
        self._is_due = False
        self._tells_forward = False
        self._pauses: list[PauseSpan] = []
        self._guess: _Guess | None = None
        self._main: object = None
        self._others: set[object] = set()

    def is_inside(self, activity: Activity) -> bool:
        """Tell whether an activity is under way, however deep."""
        return activity in self._stack

    def enter(self, activity: Activity, now_ns: int) -> None:
        """Book that an activity begins inside the one under way."""
        stack = self._stack
        if Activity.PAUSE not in stack:
            if stack:
                self._charge(stack[-1], now_ns)
            else:
                self._begin_outermost(activity, now_ns)
            self._mark_ns = now_ns
        stack.append(activity)

    def leave(self, now_ns: int, *, stepped: object = None, pause: Pause = Pause.UNKNOWN) -> Iteration | None:
        """Book that the innermost activity ends; returns the iteration, where that ends with it.

        `stepped` names an optimizer whose step is done; `pause` says what a pause was for.
        """
        activity = self._stack.pop()
        if stepped is not None and Activity.OPTIMIZER not in self._stack:
            self.note_stepped(stepped)
        if activity is Activity.PAUSE:
            if Activity.PAUSE not in self._stack:
                self._add_pause(PauseSpan(self._mark_ns, now_ns, pause))
                self._mark_ns = now_ns
        elif Activity.PAUSE not in self._stack:
            self._charge(activity, now_ns)
            self._mark_ns = now_ns
            if activity is Activity.BACKWARD and Activity.BACKWARD not in self._stack:
                self._micro_batches += 1
            self._is_due |= activity is Activity.ITERATION
        if self._is_due and not self._stack:
            return self._end_iteration(now_ns)
        return None

    def note_stepped(self, optimizer: object) -> None:
        """Tell that an optimizer's step is done. The main one's ends the iteration.

        The main optimizer is the first one seen, until another steps twice without it.
        """
        if Activity.PAUSE in self._stack:
            return
        if self._main is None or optimizer == self._main or optimizer in self._others:
            self._main = optimizer
            self._others.clear()
            self._is_due = True
        elif len(self._others) < _MAX_OTHERS:
            self._others.add(optimizer)

    def guess_evaluation(self, now_ns: int) -> None:
        """Tell that the model went to evaluation mode between two activities."""
        if not self._stack and self._guess is None and self._start_ns:
            self._guess = _Guess(now_ns, tuple(self._sums), self._micro_batches, len(self._pauses))

    def settle_evaluation(self, now_ns: int, *, was_pause: bool) -> None:
        """Tell that it is back in training mode, so that all since then was a pause; or that it was none."""
        guess, self._guess = self._guess, None
        if guess is None or self._stack or not was_pause or now_ns - guess.since_ns < MIN_PAUSE_NS:
            return
        self._sums, self._micro_batches = list(guess.sums), guess.micro_batches
        del self._pauses[guess.pause_count :]
        self._add_pause(PauseSpan(guess.since_ns, now_ns, Pause.EVALUATION))
        self._mark_ns = now_ns

    def note_restart(self, now_ns: int) -> None:
        """Tell that a training begins: what was since the last iteration is no part of the next."""
        if not self._stack:
            self._main = None  # it may have an optimizer of its own
        if self._start_ns and not self._stack:
            self._add_pause(PauseSpan(self._mark_ns, now_ns, Pause.UNKNOWN))
            self._mark_ns = now_ns

    def _begin_outermost(self, activity: Activity, now_ns: int) -> None:
        if activity is Activity.BACKWARD:
            self._guess = None  # a part of the model that stays in evaluation mode
        is_start = self._start_ns == 0 and activity is not Activity.PAUSE
        if is_start or (self._is_first and activity is Activity.DATA and not self._micro_batches):
            # The first iteration begins with its data, not with the first batch that anybody ever read.
            self._start_ns, self._sums = now_ns, list(_EMPTY)
        elif activity is Activity.BACKWARD and not self._tells_forward:
            self._sums[Activity.FORWARD] += now_ns - self._mark_ns
        self._tells_forward |= activity in {Activity.FORWARD, Activity.ITERATION}

    def _charge(self, activity: Activity, now_ns: int) -> None:
        if activity < len(self._sums):
            self._sums[activity] += now_ns - self._mark_ns

    def _add_pause(self, pause: PauseSpan) -> None:
        if not self._start_ns or pause.end_ns - pause.start_ns < MIN_PAUSE_NS:
            return
        before = self._pauses[-1] if self._pauses else None
        if before and before.reason is pause.reason and pause.start_ns - before.end_ns < MIN_PAUSE_NS:
            self._pauses[-1] = before._replace(end_ns=pause.end_ns)
        elif len(self._pauses) < _MAX_PAUSES:
            self._pauses.append(pause)

    def _end_iteration(self, now_ns: int) -> Iteration:
        data_ns, forward_ns, backward_ns, optimizer_ns = self._sums
        ended = Iteration(
            self._start_ns or now_ns,
            now_ns,
            data_ns,
            forward_ns,
            backward_ns,
            optimizer_ns,
            self._micro_batches,
            self.number,
            tuple(self._pauses),
        )
        self._start_ns = self._mark_ns = now_ns
        self._sums, self._micro_batches = list(_EMPTY), 0
        self._is_first = self._is_due = self._tells_forward = False
        self._pauses, self._guess = [], None
        return ended
