# Keeps every hook of ours from hurting its host: an error is counted and swallowed, and a hook that
# fails or takes too long again and again switches itself off and says so in the ring.
import contextlib
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from otel_llmprism.native.ring_records import HookOff, pack_hook_off

P = ParamSpec("P")
R = TypeVar("R")

MAX_FAILURES = 10  # of one hook; then it stays off
WINDOW_CALLS = 1000
_SLOWEST_ALLOWED = WINDOW_CALLS // 100  # calls over budget in a window: more means p99 is over it
BUDGET_NS = 1_000_000  # 1 ms: 1 % of a slow step, far above what a hook needs (tens of microseconds)

TELL_EVERY_NS = 100_000  # of a hook's time: a call a hook to the ring would make each dearer by 5 %


class Ring(Protocol):
    def put(self, record: bytes, /) -> bool: ...

    def add_hook_time(self, duration_ns: int, /) -> None: ...


class NullRing:
    """Takes nothing: what recorders write to when we are off."""

    def put(self, _record: bytes, /) -> bool:
        return False

    def add_hook_time(self, _duration_ns: int, /) -> None:
        pass


class HookState:
    """One hook's health in one process."""

    def __init__(self, name: str, ring: Ring, budget_ns: int = BUDGET_NS) -> None:
        self.name = name
        self.is_off = False
        self.failures = 0
        self.calls = 0
        self.total_ns = 0
        # Wall time is cheap to read but grows when the host's cores are taken by others. A window over
        # budget is therefore measured again in CPU time of the thread before anything is switched off.
        self.clock = time.perf_counter_ns
        self._slow_calls = 0
        self._slowest_ns = 0
        self._ring = ring
        self._told_ns = 0
        self._budget_ns = budget_ns

    def note_call(self, duration_ns: int) -> None:
        self.calls += 1
        self.total_ns += duration_ns
        untold_ns = self.total_ns - self._told_ns
        if untold_ns >= TELL_EVERY_NS:
            self._told_ns = self.total_ns
            self._ring.add_hook_time(untold_ns)
        if duration_ns > self._budget_ns:
            self._slow_calls += 1
            self._slowest_ns = max(self._slowest_ns, duration_ns)
        if self.calls % WINDOW_CALLS == 0:
            self._end_window(is_over=self._slow_calls > _SLOWEST_ALLOWED)

    def _end_window(self, *, is_over: bool) -> None:
        if is_over and self.clock is time.thread_time_ns:
            self._switch_off(HookOff.BUDGET)
        self.clock = time.thread_time_ns if is_over else time.perf_counter_ns
        self._slow_calls = self._slowest_ns = 0

    def note_failure(self) -> None:
        self.failures += 1
        if self.failures >= MAX_FAILURES:
            self._switch_off(HookOff.FAILED)

    def _switch_off(self, reason: HookOff) -> None:
        self.is_off = True
        now_ns = time.monotonic_ns()
        with contextlib.suppress(Exception):  # this is where errors end
            self._ring.put(pack_hook_off(self.name, now_ns, self._slowest_ns, self._budget_ns, reason))


class Guarded(Protocol):
    hook: HookState


G = TypeVar("G", bound=Guarded)


def guarded(
    fallback: R,
) -> Callable[[Callable[Concatenate[G, P], R]], Callable[Concatenate[G, P], R]]:
    """Make a method of a recorder safe to call from the user's process; `fallback` on any error."""

    def decorate(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
        def call(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
            hook = self.hook
            if hook.is_off:
                return fallback
            clock = hook.clock
            began_ns = clock()
            try:
                return method(self, *args, **kwargs)
            except Exception:  # noqa: BLE001  whatever it is, the user's step goes on
                hook.note_failure()
                return fallback
            finally:
                hook.note_call(clock() - began_ns)

        return call

    return decorate
