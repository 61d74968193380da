# Faults from outside, on time: waits for each episode, starts and stops its fault, and notes when. Knows no
# engine but the pids that a fault is made for.
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from otel_llmprism.testing.evaluation.run_plan import Episode, RunPlan
from otel_llmprism.testing.faults.fault import Fault
from otel_llmprism.testing.faults.fault_ledger import FaultEntry

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds of a plan as CLOCK_MONOTONIC."""

    origin_ns: int

    def to_ns(self, plan_s: float) -> int:
        return self.origin_ns + int(plan_s * 1e9)


def list_planned(plan: RunPlan, clock: Clock) -> list[FaultEntry]:
    """Return the ledger of faults that the engine injects itself: they begin exactly as planned."""
    return [
        _build_entry(plan, one, clock.to_ns(one.begin_s), clock.to_ns(one.end_s)) for one in plan.episodes
    ]


def inject_all(plan: RunPlan, clock: Clock, fault: Fault, is_running: Callable[[], bool]) -> list[FaultEntry]:
    """Make every episode happen; returns early when the engine is gone, the fault always stopped."""
    done: list[FaultEntry] = []
    try:
        for one in plan.episodes:
            if not _wait_until(clock.to_ns(one.begin_s), is_running):
                break
            fault.start(one.intensity)
            began_ns = time.monotonic_ns()
            goes_on = _wait_until(clock.to_ns(one.end_s), is_running)
            ended_ns = time.monotonic_ns()
            fault.stop()
            done.append(_build_entry(plan, one, began_ns, ended_ns))
            if not goes_on:
                break
    finally:
        fault.stop()
    return done


def close_all(faults: Sequence[Fault]) -> None:
    for fault in faults:
        fault.close()


def _build_entry(plan: RunPlan, one: Episode, begin_ns: int, end_ns: int) -> FaultEntry:
    kind = plan.kind
    return FaultEntry(kind.layer, kind.target, begin_ns, end_ns, one.intensity, one.id, kind.name)


def _wait_until(time_ns: int, is_running: Callable[[], bool]) -> bool:
    while (left_ns := time_ns - time.monotonic_ns()) > 0:
        if not is_running():
            return False
        time.sleep(min(_POLL_S, left_ns / 1e9))
    return is_running()
