# CPU time withheld by a quota: told by the control group, or seen as waiting while nobody else runs.
from collections.abc import Iterator

from otel_llmprism.diagnose.causes.case import Candidate, Case, Change
from otel_llmprism.diagnose.causes.whose import compare_waits, find_struck
from otel_llmprism.diagnose.kinds import FindingKind, SubjectType
from otel_llmprism.model.findings import Subject

_PERIODS = "cgroup.cpu.nr_throttled"
_MIN_THROTTLED = 0.02  # seconds per second
_MIN_PERIODS_PER_S = 0.5  # of periods in which the quota ran out; there are usually ten a second
_MIN_UNCOVERED = 0.15


def find_throttle(case: Case) -> Iterator[Candidate]:
    """Yield a quota that took the time: of the engine, of one rank, or one that nobody tells of."""
    for node in case.facts.hosts:
        waits = compare_waits(case, node)
        groups = _list_groups(case, node)
        emptied = {of: change for of, change in groups.items() if change.is_notable(_MIN_PERIODS_PER_S)}
        if emptied:
            yield from _find_told(case, node, waits, emptied, len(groups))
        elif waits is not None and not any(change.observed for change in groups.values()):
            yield from _find_untold(case, node, waits)


def _list_groups(case: Case, node: str) -> dict[str, Change]:
    """Return how often quotas ran out: of the engine's first process under "", of ranks under their label."""
    found = {}
    for name in case.facts.hosts[node].ring.list_names(_PERIODS):
        change = case.compare_host(node, name, default=0.0, unit="1/s")
        if change is not None:
            found[name.removeprefix(_PERIODS)] = change
    return found


def _find_told(
    case: Case, node: str, waits: Change | None, emptied: dict[str, Change], group_count: int
) -> Iterator[Candidate]:
    changes = list(emptied.values())
    for of in emptied:
        told = case.compare_host(node, f"cgroup.cpu.throttled_s{of}", default=0.0)
        limit = case.compare_host(node, f"cgroup.cpu.limit_cores{of}", default=0.0, unit="cores")
        changes = [one for one in (told, *changes, limit) if one is not None]
    taken = max((one.delta for one in changes if "throttled_s" in one.signal), default=0.0)
    # The kernel counts throttled time by processor and late; waiting in the queue tells the rest.
    lost = max(taken, waits.delta if waits is not None else 0.0)
    if lost > _MIN_THROTTLED:
        # Whoever of a group is held back first is chance: without a group of its own no rank is named.
        own = {of: change.delta for of, change in emptied.items() if of}
        is_one_rank = len(own) == 1 and group_count > 1 and "" not in emptied
        rank = next(iter(own), "").removeprefix("/rank")
        struck = Subject(SubjectType.RANK, rank) if is_one_rank else case.engine
        yield _build(case, struck, lost, [*changes, *([waits] if waits is not None else [])])


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
        yield _build(case, struck, min(uncovered, waits.delta), [worst, beside, others, idle])


def _build(case: Case, struck: Subject, lost: float, changes: list[Change]) -> Candidate:
    evidence = tuple(change.to_evidence() for change in changes)
    return Candidate(FindingKind.CPU_THROTTLE, struck, case.share(lost), evidence)
