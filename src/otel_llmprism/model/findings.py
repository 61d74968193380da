# What was found: one incident as it stands now. Times are real time in ns, since a finding outlives its node.
from dataclasses import dataclass, field
from enum import StrEnum


class FindingState(StrEnum):
    OPEN = "open"
    UPDATED = "updated"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Subject:
    """What caused it; `type` and the form of `id` are those of docs/findings.md."""

    type: str
    id: str


@dataclass(frozen=True, slots=True)
class Evidence:
    signal: str
    observed: float
    expected: float
    unit: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Affected:
    """The newest of each, bounded by whoever fills it."""

    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRef:
    """A step worth keeping for a finding: its onset, its worst, its recovery."""

    run: str
    step: int
    why: str  # onset, worst, recovery


@dataclass(frozen=True, slots=True)
class Finding:
    """One state of one incident; `id` stays the same from open to close and over a reopening."""

    id: str
    kind: str
    subject: Subject
    engine_id: str  # the engine it was seen on; several: the first
    run: str
    state: FindingState
    occurrence: int  # counts reopenings, from 0
    onset_ns: int
    opened_ns: int
    updated_ns: int
    closed_ns: int | None
    score: float
    confidence: float  # 0 to 1
    excess_s: float
    lost_request_s: float
    summary: str
    evidence: tuple[Evidence, ...] = ()
    affected: Affected = field(default_factory=Affected)
    steps: tuple[StepRef, ...] = ()
    engines: tuple[str, ...] = ()  # all engines that share the cause
