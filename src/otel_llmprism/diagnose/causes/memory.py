# Time lost to finding memory: stalls in reclaim, pages read back from a disk.
from collections.abc import Iterator

from otel_llmprism.diagnose.causes.case import Candidate, Case, Change
from otel_llmprism.diagnose.kinds import FindingKind, SubjectType
from otel_llmprism.model.findings import Subject

_STALLS = ("system.pressure_s/memory/some", "cgroup.pressure_s/memory/some")
_FAULTS = ("own.major_faults", "system.memory_events/pgmajfault", "system.memory_events/pswpin")
_MIN_STALL = 0.02  # seconds per second
_MIN_FAULTS = 5.0  # pages read back a second
_FAULT_S = 0.001  # what one costs: between flash and a disk
_FULL = 0.97  # of the group's limit


def find_memory_pressure(case: Case) -> Iterator[Candidate]:
    """Yield shortage of memory: of the engine's own group where its limit is the cause, else of the host."""
    for node in case.facts.hosts:
        stalls = _collect(case, node, _STALLS, "s/s")
        faults = _collect(case, node, _FAULTS, "1/s")
        stalled = max((one.delta for one in stalls if one.is_notable(_MIN_STALL)), default=0.0)
        faulted = max((one.delta for one in faults if one.is_notable(_MIN_FAULTS)), default=0.0) * _FAULT_S
        lost = max(stalled, faulted)
        if lost < _MIN_STALL:
            continue
        group = _collect(case, node, ("cgroup.memory_events/high", "cgroup.memory_events/max"), "1/s")
        usage = case.compare_host(node, "cgroup.memory_bytes/usage", default=0.0, unit="By")
        limit = case.compare_host(node, "cgroup.memory_bytes/limit", default=0.0, unit="By")
        is_group_full = (
            usage is not None and limit is not None and usage.observed > _FULL * limit.observed > 0
        )
        is_own = is_group_full or any(one.delta > 1 for one in group)
        subject = case.engine if is_own else Subject(SubjectType.HOST, node)
        changes = [*stalls, *faults, *group, *(one for one in (usage, limit) if one is not None)]
        evidence = tuple(one.to_evidence() for one in changes if one.observed or one.expected)
        yield Candidate(FindingKind.MEMORY_PRESSURE, subject, case.share(lost), evidence)


def _collect(case: Case, node: str, names: tuple[str, ...], unit: str) -> list[Change]:
    found = (case.compare_host(node, name, default=0.0, unit=unit) for name in names)
    return [change for change in found if change is not None]
