# What the findings of one episode are worth: ranked, held against what the fault's kind accepts. Pure.
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.testing.evaluation.fault_kinds import FaultKind

GRACE_S = 10.0  # after its end a fault may still be found


@dataclass(frozen=True, slots=True)
class Outcome:
    """One episode as the sentinel saw it; `delay_s` infinite: nothing opened."""

    kind: str
    intensity: float
    delay_s: float  # from onset to the first finding of any kind
    ranked: tuple[str, ...]  # `kind subject-type:id`, most likely cause first
    right_place: int  # of the accepted one in `ranked`, from 1; 0: it is not there

    @property
    def is_found(self) -> bool:
        return math.isfinite(self.delay_s)


def judge_episode(
    kind: FaultKind, intensity: float, begin_ns: int, end_ns: int, findings: Iterable[Finding]
) -> Outcome:
    """Hold the findings of one episode against its fault; times are real time of the data."""
    latest_ns = end_ns + int(GRACE_S * 1e9)
    incidents = list_incidents(findings, begin_ns, latest_ns)
    opened = [finding.opened_ns for finding in incidents]
    delay_s = (min(opened) - begin_ns) / 1e9 if opened else math.inf
    ranked = rank_findings(incidents)
    places = [place for place, finding in enumerate(ranked, 1) if is_accepted(kind, finding)]
    names = tuple(name_finding(finding) for finding in ranked)
    return Outcome(kind.name, intensity, delay_s, names, places[0] if places else 0)


def list_incidents(findings: Iterable[Finding], begin_ns: int, end_ns: int) -> list[Finding]:
    """Return the latest state, within the stretch, of each incident that opened in it."""
    latest: dict[tuple[str, int], Finding] = {}
    for finding in findings:
        if begin_ns <= finding.opened_ns <= end_ns and finding.updated_ns <= end_ns:
            latest[finding.id, finding.occurrence] = finding
    return list(latest.values())


def rank_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Most likely root cause first: by confidence, then by score, then by who came first."""
    return sorted(findings, key=lambda one: (-one.confidence, -one.score, one.opened_ns))


def is_accepted(kind: FaultKind, finding: Finding) -> bool:
    """Tell whether a finding names this fault."""
    is_kind = (finding.kind, finding.subject.type) in kind.accepted
    return is_kind and (not kind.subjects or finding.subject.id in kind.subjects)


def name_finding(finding: Finding) -> str:
    return f"{finding.kind} {finding.subject.type}:{finding.subject.id}"


def count_false(findings: Iterable[Finding]) -> list[Finding]:
    """Return the distinct findings ever opened."""
    seen = {finding.id: finding for finding in findings if finding.state is not FindingState.CLOSED}
    return list(seen.values())
