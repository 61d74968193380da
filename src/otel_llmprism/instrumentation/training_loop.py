# What framework hooks call while somebody trains: enter and leave an activity. Times are taken here; what
# they mean is the clock's, what is written the run's. Never raises, and costs little until one trains.
import os
import threading
import time
import weakref
from typing import Any

from otel_llmprism.instrumentation.guard import HookState, NullRing, guarded
from otel_llmprism.instrumentation.iteration_clock import Activity, IterationClock
from otel_llmprism.instrumentation.training_run import TrainingRun
from otel_llmprism.native.ring_records import Pause

_PROOFS = frozenset({Activity.BACKWARD, Activity.OPTIMIZER, Activity.ITERATION})  # only a training does these


class TrainingLoop:
    """One per process. Only the thread that trains is listened to."""

    def __init__(self, run: TrainingRun | None = None) -> None:
        self.hook = HookState("step", NullRing())
        self.clock = IterationClock()
        self.run = run or TrainingRun()
        self._owner = threading.main_thread()
        self._owner_id = self._owner.ident
        self._is_proved = False
        self._evaluated: weakref.ref[Any] | None = None

    @guarded(False)
    def enter(self, activity: Activity, optimizer: object = None, number: int | None = None) -> bool:
        """Begin an activity; False when nobody wants to know, and then there is no `leave`.

        `number`: what the framework calls the iteration under way.
        """
        if threading.get_ident() != self._owner_id and not self._change_owner(activity, optimizer):
            return False
        now_ns = time.monotonic_ns()
        self._is_proved |= activity in _PROOFS
        if self._evaluated is not None and activity is Activity.BACKWARD:
            self._settle(now_ns, was_pause=False)
        self.clock.enter(activity, now_ns)
        if number is not None:
            self.clock.number = number
        self.run.write_known()
        return True

    @guarded(None)
    def leave(self, stepped: object = None, pause: Pause = Pause.UNKNOWN) -> None:
        """End the activity that was entered last; `stepped`: an optimizer whose step is done."""
        ended = self.clock.leave(time.monotonic_ns(), stepped=stepped, pause=pause)
        if ended is not None:
            self.run.book(ended)
            self.hook.is_off = self.run.is_over

    @guarded(False)
    def note_evaluating(self, module: Any) -> bool:
        """Tell that a module went to evaluation mode; True when its way back is worth watching."""
        if not self._is_proved or threading.get_ident() != self._owner_id or self._evaluated is not None:
            return False
        self.clock.guess_evaluation(time.monotonic_ns())
        self._evaluated = weakref.ref(module)
        return True

    @guarded(False)
    def note_training(self, module: Any) -> bool:
        """Tell that a module went back to training mode; True when no way back is to be watched any more."""
        watched = self._evaluated() if self._evaluated is not None else None
        if watched is not None and watched is not module:
            return False
        self._settle(time.monotonic_ns(), was_pause=watched is module)
        return True

    @guarded(None)
    def note_restart(self) -> None:
        """Tell that a training begins anew."""
        self.clock.note_restart(time.monotonic_ns())

    def reset(self) -> None:
        """Begin with nothing: what a forked child has to do."""
        self.__init__()  # type: ignore[misc]

    def _settle(self, now_ns: int, *, was_pause: bool) -> None:
        self.clock.settle_evaluation(now_ns, was_pause=was_pause)
        self._evaluated = None

    def _change_owner(self, activity: Activity, optimizer: object) -> bool:
        if activity not in _PROOFS:
            return False
        if self._is_proved and self._owner.is_alive():
            # The autograd engine's threads step optimizers inside a backward pass.
            if activity is Activity.OPTIMIZER and self.clock.is_inside(Activity.BACKWARD):
                self.clock.note_stepped(optimizer)
            return False
        self._owner = threading.current_thread()
        self._owner_id = threading.get_ident()
        self.clock = IterationClock()
        return True


LOOP = TrainingLoop()
os.register_at_fork(after_in_child=LOOP.reset)
