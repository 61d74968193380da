# Faults from outside, on time: waits for each episode, starts and stops its fault, and notes when. Knows no
# engine but the pids that a fault is made for.
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from otel_llmprism.testing.evaluation.fault_kinds import KINDS
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


def inject_all(
    plan: RunPlan, clock: Clock, faults: Mapping[str, Fault], is_running: Callable[[], bool]
) -> list[FaultEntry]:
    """Make every episode happen and return the ledger; returns early when the engine is gone.

    `faults`, by kind, are those from outside. What the engine injects itself begins exactly as planned.
    """
    done: list[FaultEntry] = []
    for one in plan.episodes:
        fault, kind = faults.get(one.kind), KINDS[one.kind]
        if fault is not None:
            entry = _inject_one(one, clock, fault, is_running)
            if entry is None:
                break
            done.append(entry)
        elif kind.place is not None:
            done.append(_build_entry(one, clock.to_ns(one.begin_s), clock.to_ns(one.end_s)))
    return done


def _inject_one(
    one: Episode, clock: Clock, fault: Fault, is_running: Callable[[], bool]
) -> FaultEntry | None:
    if not _wait_until(clock.to_ns(one.begin_s), is_running):
        return None
    try:
        fault.start(one.intensity)
        began_ns = time.monotonic_ns()
        _wait_until(clock.to_ns(one.end_s), is_running)
        return _build_entry(one, began_ns, time.monotonic_ns())
    finally:
        fault.stop()


def _build_entry(one: Episode, begin_ns: int, end_ns: int) -> FaultEntry:
    kind = KINDS[one.kind]
    return FaultEntry(kind.layer, kind.target, begin_ns, end_ns, one.intensity, one.id, kind.name)


def _wait_until(time_ns: int, is_running: Callable[[], bool]) -> bool:
    while (left_ns := time_ns - time.monotonic_ns()) > 0:
        if not is_running():
            return False
        time.sleep(min(_POLL_S, left_ns / 1e9))
    return is_running()
