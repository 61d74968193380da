# CPU time withheld by a quota: told by the control group, or seen as waiting while nobody else runs.
from collections.abc import Iterator

from otel_llmprism.diagnose.causes.case import Candidate, Case, Change
from otel_llmprism.diagnose.causes.whose import find_struck
from otel_llmprism.diagnose.kinds import FindingKind, SubjectType

_MIN_THROTTLED = 0.02  # seconds per second
_MIN_PERIODS_PER_S = 0.5  # of periods in which the quota ran out; there are usually ten a second
_MIN_UNCOVERED = 0.15


def find_throttle(case: Case) -> Iterator[Candidate]:
    """Yield a quota that took the time, with the rank it struck where it struck one."""
    for node in case.facts.hosts:
        told = case.compare_host(node, "cgroup.cpu.throttled_s", default=0.0)
        periods = case.compare_host(node, "cgroup.cpu.nr_throttled", default=0.0, unit="1/s")
        waits = case.compare_host(node, "wait")
        limit = case.compare_host(node, "cgroup.cpu.limit_cores", default=0.0, unit="cores")
        if periods is not None and periods.is_notable(_MIN_PERIODS_PER_S):
            # The kernel counts throttled time by processor and late; waiting in the queue tells the rest.
            lost = max(told.delta if told else 0.0, waits.delta if waits else 0.0)
            if lost > _MIN_THROTTLED:
                changes = [change for change in (told, periods, waits, limit) if change is not None]
                yield _build(case, node, lost, changes)
        elif waits is not None and (periods is None or periods.observed == 0):
            yield from _find_untold(case, node, waits)


def _find_untold(case: Case, node: str, waits: Change) -> Iterator[Candidate]:
    """Yield a quota that no control group of ours tells of: a thread waits while processors are idle.

    Processors are never idle for long while something may run there; on a host so large that others always
    run somewhere this stays unseen.
    """
    # Whoever shares processors waits in turn: a rank that waits alone does not share them with other ranks.
    struck = find_struck(case, node)
    of = f"/rank{struck.id}" if struck.type == SubjectType.RANK else ""
    worst = case.compare_host(node, f"worst_wait{of}")
    beside = case.compare_host(node, f"beside_worst{of}", default=0.0, unit="cores")
    others = case.compare_host(node, "others_cores", default=0.0, unit="cores")
    idle = case.compare_host(node, "idle_cores", default=0.0, unit="cores")
    if worst is None or beside is None or others is None or idle is None:
        return
    # Where a processor is idle, others that ran all along would have gone there.
    theirs = max(0.0, others.delta) if idle.observed >= 1 else others.observed
    uncovered = worst.observed - beside.observed - theirs
    if worst.is_notable(_MIN_UNCOVERED) and uncovered > _MIN_UNCOVERED and idle.observed > worst.observed:
        yield _build(case, node, min(uncovered, waits.delta), [worst, beside, others, idle])


def _build(case: Case, node: str, lost: float, changes: list[Change]) -> Candidate:
    evidence = tuple(change.to_evidence() for change in changes)
    return Candidate(FindingKind.CPU_THROTTLE, find_struck(case, node), case.share(lost), evidence)
