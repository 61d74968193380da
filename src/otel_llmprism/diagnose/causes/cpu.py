# Threads of the engine that could run and did not: others had the processors, or its own threads share fewer.
from collections.abc import Iterator

from otel_llmprism.diagnose.causes.case import Candidate, Case, Change
from otel_llmprism.diagnose.causes.whose import compare_waits, find_struck
from otel_llmprism.diagnose.kinds import FindingKind, SubjectType
from otel_llmprism.model.findings import Subject

_MIN_WAIT = 0.05  # seconds per second, over all threads of the engine
_MIN_OTHERS = 0.1  # cores


def find_cpu_contention(case: Case) -> Iterator[Candidate]:
    """Yield contention by others (subject: the host) and among the engine's own threads.

    With a fair scheduler the engine's threads wait no longer for others than these ran: what others ran more
    than in healthy time bounds what they cost, and waiting beyond that is the engine's own threads'.
    """
    for node in case.facts.hosts:
        others = case.compare_host(node, "others_cores", unit="cores")
        waits = _compare_waits(case, node)
        if waits is None or not waits.is_notable(_MIN_WAIT):
            continue
        theirs = max(0.0, others.delta) if others is not None else 0.0
        covered = min(waits.delta, theirs) if theirs > _MIN_OTHERS else 0.0
        evidence = tuple(
            change.to_evidence()
            for change in (
                waits,
                others,
                case.compare_host(node, "own_cores", unit="cores"),
                case.compare_host(node, "idle_cores", unit="cores"),
                case.compare_host(node, "system.tasks_running", unit="{task}"),
            )
            if change is not None
        )
        if covered > 0:
            host = Subject(SubjectType.HOST, node)
            yield Candidate(FindingKind.CPU_CONTENTION, host, case.share(covered), evidence)
        if waits.delta - covered > _MIN_WAIT and covered < waits.delta / 2:
            struck = find_struck(case, node)
            share = case.share(waits.delta - covered)
            yield Candidate(FindingKind.CPU_CONTENTION, struck, share, evidence)


def _compare_waits(case: Case, node: str) -> Change | None:
    """Return the threads' waiting; where the kernel does not tell it, the host's pressure."""
    if case.facts.hosts[node].ring.list_names("wait/"):
        return compare_waits(case, node)
    return case.compare_host(node, "system.pressure_s/cpu/some")
