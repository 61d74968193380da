# Time in the scheduler: within its call, and between a result and the next call while work waited.
from collections.abc import Iterator

from otel_llmprism.diagnose.causes.case import Candidate, Case
from otel_llmprism.diagnose.kinds import FindingKind

_MIN_DELAY_S = 0.0002  # a step
_MIN_LOST = 0.01  # seconds per second


def find_scheduler_delay(case: Case) -> Iterator[Candidate]:
    """Yield what scheduling and the gaps between steps cost more than in healthy time."""
    lost, evidence = 0.0, []
    for name in ("schedule_s", "gap_s"):
        change = case.compare(name)
        if change is not None and change.is_notable(_MIN_DELAY_S):
            lost += change.delta * case.sum("steps") / case.wall_s
            evidence.append(change.to_evidence("per step"))
    if lost > _MIN_LOST:
        yield Candidate(FindingKind.SCHEDULER_DELAY, case.engine, case.share(lost), tuple(evidence))
