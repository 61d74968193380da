# Which of torch's profilers run in this process: told by the hooks round their start and stop. Whoever would
# subscribe to the GPU looks here first: Kineto's one attempt to subscribe must not find it taken.
import threading
import weakref
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProfilerState:
    running: int
    started: int  # in this process so far, whether or not they still run

    @property
    def is_running(self) -> bool:
        return self.running > 0


_lock = threading.Lock()
_running: "weakref.WeakSet[object]" = weakref.WeakSet()  # one that is dropped without a stop is over, too
_started = 0


def profiler_state() -> ProfilerState:
    """Return how many profilers run, and how many ever did."""
    with _lock:
        return ProfilerState(len(_running), _started)


def note_profiler_start(profiler: object) -> None:
    """Book that a profiler is about to start; again for the same one changes nothing."""
    global _started  # noqa: PLW0603  one process, one count
    with _lock:
        if profiler not in _running:
            _running.add(profiler)
            _started += 1


def note_profiler_stop(profiler: object) -> None:
    """Book that it stopped, or failed to start."""
    with _lock:
        _running.discard(profiler)
