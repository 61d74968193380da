# One incident over its life, and how it is told as a Finding. Changed by the book only.
from dataclasses import dataclass, field, replace

from otel_llmprism.diagnose.kinds import Domain, FindingKind, SubjectType
from otel_llmprism.model.findings import Affected, Evidence, Finding, FindingState, StepRef, Subject

MAX_EVIDENCE = 24
MAX_ENGINES = 64
Key = tuple[str, str, str, str]  # kind, subject type, subject id, engine where the subject is within one


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """What a look at an incident said last."""

    kind: FindingKind
    subject: Subject
    explained: float
    confidence: float
    summary: str
    evidence: tuple[Evidence, ...]
    affected: Affected


@dataclass(slots=True)
class Incident:
    id: str
    domain: Domain
    engine_id: str
    run: str
    diagnosed: Diagnosed
    onset_ns: int
    opened_ns: int
    updated_ns: int
    last_over_ns: int  # when it was last beyond its limits
    excess_s: float = 0.0
    lost_request_s: float = 0.0
    accounted_ns: dict[str, int] = field(default_factory=dict)  # by engine: until when it is summed
    closed_ns: int | None = None
    occurrence: int = 0
    share: float = 0.0
    engines: tuple[str, ...] = ()
    steps: tuple[StepRef, ...] = ()
    is_acknowledged: bool = False
    is_dismissed: bool = False
    silenced_until_ns: int = 0
    told_excess_s: float = 0.0
    worst_s: float = 0.0  # excess of the worst step

    @property
    def key(self) -> Key:
        return build_key(self.diagnosed.kind, self.diagnosed.subject, self.engine_id)

    @property
    def is_open(self) -> bool:
        return self.closed_ns is None

    def add_engine(self, engine_id: str) -> None:
        if engine_id not in self.engines and len(self.engines) < MAX_ENGINES:
            self.engines = (*self.engines, engine_id)

    def add_step(self, step: StepRef | None) -> None:
        """Keep a step of each why; a later one replaces it."""
        if step is not None:
            self.steps = (*(one for one in self.steps if one.why != step.why), step)

    def to_finding(self, state: FindingState) -> Finding:
        seen = self.diagnosed
        return Finding(
            id=self.id,
            kind=str(seen.kind),
            subject=seen.subject,
            engine_id=self.engine_id,
            run=self.run,
            state=state,
            occurrence=self.occurrence,
            onset_ns=self.onset_ns,
            opened_ns=self.opened_ns,
            updated_ns=self.updated_ns,
            closed_ns=self.closed_ns,
            score=round(seen.explained, 4),
            confidence=round(seen.confidence, 4),
            excess_s=self.excess_s,
            lost_request_s=self.lost_request_s,
            summary=seen.summary,
            evidence=seen.evidence[:MAX_EVIDENCE],
            affected=seen.affected,
            steps=self.steps,
            engines=self.engines,
        )

    def lower_confidence(self, factor: float) -> None:
        self.diagnosed = replace(self.diagnosed, confidence=self.diagnosed.confidence * factor)


def build_key(kind: str, subject: Subject, engine_id: str) -> Key:
    """Return what makes two incidents the same: hosts and GPUs are shared by engines, the rest is not."""
    is_shared = subject.type in {SubjectType.HOST, SubjectType.GPU}
    return str(kind), str(subject.type), subject.id, "" if is_shared else engine_id
