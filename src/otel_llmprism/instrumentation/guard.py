# Keeps every hook of ours from hurting its host: an error is counted and swallowed, and a hook that
# fails or takes too long again and again switches itself off and says so in the ring.
import contextlib
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from otel_llmprism.native.extension import revoke_lanes
from otel_llmprism.native.ring_records import HookOff, pack_hook_off

P = ParamSpec("P")
R = TypeVar("R")

MAX_FAILURES = 10  # of one hook, none of them long after the one before; then it stays off
FORGET_FAILURES_NS = 600_000_000_000  # ten failures in a year are no reason to stay off
# One call in so many is timed: two looks at a clock and their sums are a sixth of a hook's cost. Odd, so that
# a hook which several places call in turns shows them all.
TIME_EVERY = 5
WINDOW_CALLS = 400  # timed ones
_SLOWEST_ALLOWED = WINDOW_CALLS // 100  # calls over budget in a window: more means p99 is over it
BUDGET_NS = 1_000_000  # 1 ms: 1 % of a slow step, far above what a hook needs (tens of microseconds)

SETTLE_EVERY = 8  # timed calls after which their time is told to the ring
_KEPT_CALLS = 128


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
        self.is_off = False  # the one thing that a call asks
        # Wall time is cheap to read but grows when the host's cores are taken by others. A window over
        # budget is therefore measured again in CPU time of the thread before anything is switched off.
        self.clock = time.perf_counter_ns
        self.calls = 0
        self._timed = 0
        self._untold_ns = 0
        self._budget_ns = budget_ns
        self.name = name
        self.off_reason: HookOff | None = None  # why it is off for good
        self.is_unwanted = False  # the user's word, for good too
        self.failures = 0
        self._failed_ns = 0
        self._in_window = 0
        self._slow_calls = 0
        self._slowest_ns = 0
        self._kept_ns: list[int] = [0] * _KEPT_CALLS
        self._ring = ring
        self._told_ns = 0

    @property
    def total_ns(self) -> int:
        """How long all its calls took together, estimated from those that were timed."""
        return self._told_ns + self._untold_ns * TIME_EVERY

    @property
    def is_suspect(self) -> bool:
        """Tell whether its calls are being measured in CPU time, since they were over budget."""
        return self.clock is not time.perf_counter_ns

    def note_call(self, duration_ns: int) -> None:
        """Take the time of a call into account; the call itself is in `calls` already."""
        self._timed += 1
        self._untold_ns += duration_ns
        self._kept_ns[self._timed % _KEPT_CALLS] = duration_ns
        if self._timed % SETTLE_EVERY == 0:
            untold_ns, self._untold_ns = self._untold_ns * TIME_EVERY, 0
            self._told_ns += untold_ns
            self._ring.add_hook_time(untold_ns)
        if duration_ns > self._budget_ns:
            self._slow_calls += 1
            self._slowest_ns = max(self._slowest_ns, duration_ns)
            if self._slow_calls > _SLOWEST_ALLOWED:  # whatever the rest of the window would show
                self._end_window(is_over=True)
        self._in_window += 1
        if self._in_window >= WINDOW_CALLS:
            self._end_window(is_over=False)

    def set_asleep(self, is_asleep: bool) -> None:
        """Stop recording for now, or go on unless the hook is off for good."""
        self.is_off = is_asleep or self.is_unwanted or self.off_reason is not None
        revoke_lanes()

    def list_kept_ns(self) -> list[int]:
        """Return how long some of the latest calls took, the shortest first; for a person who asks."""
        return sorted(duration_ns for duration_ns in self._kept_ns if duration_ns)

    def _end_window(self, *, is_over: bool) -> None:
        if is_over and self.clock is time.thread_time_ns:
            self._switch_off(HookOff.BUDGET)
        self.clock = time.thread_time_ns if is_over else time.perf_counter_ns
        self._in_window = self._slow_calls = self._slowest_ns = 0

    def note_failure(self) -> None:
        now_ns = time.monotonic_ns()
        self.failures = self.failures + 1 if now_ns - self._failed_ns < FORGET_FAILURES_NS else 1
        self._failed_ns = now_ns
        if self.failures >= MAX_FAILURES:
            self._switch_off(HookOff.FAILED)

    def _switch_off(self, reason: HookOff) -> None:
        self.is_off, self.off_reason = True, reason
        revoke_lanes()
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
            hook.calls += 1
            clock = hook.clock
            began_ns = 0 if hook.calls % TIME_EVERY else clock()
            try:
                return method(self, *args, **kwargs)
            except Exception:  # noqa: BLE001  whatever it is, the user's step goes on
                hook.note_failure()
                return fallback
            finally:
                if began_ns:
                    hook.note_call(clock() - began_ns)

        return call

    return decorate
