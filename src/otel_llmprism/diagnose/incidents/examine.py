# A crossed limit -> what is lost, why, how sure, and whether more evidence is worth waiting for.
from collections.abc import Sequence
from dataclasses import dataclass

from otel_llmprism.diagnose.causes.case import Candidate, Case, measure_host_cover
from otel_llmprism.diagnose.causes.ranking import MIN_EXPLAINED, rank_causes
from otel_llmprism.diagnose.facts.engine import EngineFacts
from otel_llmprism.diagnose.facts.reference import Reference
from otel_llmprism.diagnose.incidents.excess import measure_excess
from otel_llmprism.diagnose.incidents.incident import Diagnosed
from otel_llmprism.diagnose.incidents.summaries import write_summary
from otel_llmprism.diagnose.incidents.triggers import Trigger
from otel_llmprism.diagnose.kinds import Domain, FindingKind, SubjectType
from otel_llmprism.diagnose.settings import S_NS, DiagnosisConfig
from otel_llmprism.model.findings import Affected, Evidence, Subject

ALTERNATIVE = "alternative"
_MAX_ALTERNATIVES = 4
_MAX_AFFECTED_STEPS = 64
_MIN_COVER_S = 0.4  # of fault time that a host's looks must hold before they acquit it
_SURE_SECONDS = 10  # of healthy time


@dataclass(frozen=True, slots=True)
class Examination:
    ranked: tuple[Candidate, ...]  # best first; empty: nothing that is worth an incident
    case: Case
    is_clear: bool  # the first explains enough, and nobody is left to be heard


def examine(facts: EngineFacts, trigger: Trigger, config: DiagnosisConfig) -> Examination:
    """Weigh the causes of what a trigger tells of."""
    case = build_case(facts, trigger, config)
    if trigger.domain is Domain.SILENCE:
        return Examination((_build_hang(case, trigger),), case, is_clear=True)
    ranked = tuple(rank_causes(case))
    if not ranked:
        return Examination((), case, is_clear=False)
    first = ranked[0]
    is_explained = first.explained >= config.clear_share and first.kind is not FindingKind.STEP_REGRESSION
    is_heard = not facts.hosts or measure_host_cover(case) >= _MIN_COVER_S
    return Examination(ranked, case, is_heard and (is_explained or not _can_hear_more(case)))


def build_case(facts: EngineFacts, trigger: Trigger, config: DiagnosisConfig) -> Case:
    """Return the case over the time since the onset, at most the last ten seconds."""
    window_ns = int(config.excess_window_s * S_NS)
    end_ns = max(trigger.end_ns, trigger.onset_ns + 1)
    begin_ns = max(trigger.onset_ns, end_ns - window_ns)
    reference = Reference(trigger.onset_ns, facts.unhealthy, facts.kept_normals)
    excess = measure_excess(facts, trigger.domain, reference, begin_ns, end_ns)
    rate = excess.lost_s / max(0.001, (end_ns - begin_ns) / S_NS)
    return Case(trigger.domain, facts, trigger.onset_ns, begin_ns, end_ns, rate, reference)


def describe_best(examination: Examination, share: float) -> Diagnosed:
    """Return the first cause with its evidence, the others as alternatives, and how sure it is."""
    case, ranked = examination.case, examination.ranked
    first = ranked[0]
    others = [
        Evidence(
            ALTERNATIVE,
            one.explained,
            first.explained,
            "1",
            f"{one.kind} {one.subject.type} {one.subject.id}",
        )
        for one in ranked[1 : 1 + _MAX_ALTERNATIVES]
    ]
    steps = case.facts.list_steps(case.begin_ns, case.end_ns, _MAX_AFFECTED_STEPS)
    return Diagnosed(
        kind=first.kind,
        subject=first.subject,
        explained=first.explained,
        confidence=judge_confidence(case, ranked),
        summary=write_summary(first, case, share),
        evidence=(*first.evidence, *others),
        affected=Affected(ranks=_list_victims(case, first.subject), steps=steps),
    )


def judge_confidence(case: Case, ranked: Sequence[Candidate]) -> float:
    """Return how sure the first is: what it explains, how far the next is, how much was seen at all."""
    first = ranked[0]
    if first.kind is FindingKind.HANG:
        return 0.9 * (1 - case.facts.loss_share)
    sure = 0.2 + 0.8 * first.explained
    if first.kind is FindingKind.STEP_REGRESSION:  # slow for certain, of an unknown cause
        sure = 0.5
    rivals = [one.explained for one in ranked[1:] if one.kind is not FindingKind.STEP_REGRESSION]
    margin = 1 - 0.5 * min(1.0, max(rivals, default=0.0) / max(first.explained, 0.01))
    healthy = case.reference.read_ratio(case.facts.bins, "busy_s", "steps").count
    seen = min(1.0, (healthy + 1) / _SURE_SECONDS) * (1 - case.facts.loss_share)
    heard = 1.0 if case.facts.hosts else 0.7
    return max(0.0, min(1.0, sure * margin * seen * heard))


def _name(one: Candidate) -> str:
    return f"{one.kind} {one.subject.type} {one.subject.id}"


def _can_hear_more(case: Case) -> bool:
    return bool(case.facts.hosts) or bool(case.facts.bins.list_names("rank/"))


def _list_victims(case: Case, subject: Subject) -> tuple[int, ...]:
    if subject.type != SubjectType.RANK:
        return ()
    ranks = {int(name.split("/")[1]) for name in case.facts.bins.list_names("rank/")}
    return tuple(sorted(rank for rank in ranks if str(rank) != subject.id))[:_MAX_AFFECTED_STEPS]


def _build_hang(case: Case, trigger: Trigger) -> Candidate:
    facts = case.facts
    in_flight = facts.requests.count_in_flight(facts.last_people, facts.last_schedule_ns)
    evidence = (
        Evidence("time without output", trigger.excess.lost_s, max(0.0, facts.last_expected_s or 0.0), "s"),
        Evidence("requests in flight", float(in_flight), 0.0, "{request}"),
    )
    return Candidate(FindingKind.HANG, case.engine, 1.0, evidence)


def find_named(ranked: Sequence[Candidate], kind: str, subject: Subject) -> Candidate | None:
    """Return the candidate of this name if it explains enough to be one."""
    named = (one for one in ranked if one.explained >= MIN_EXPLAINED)
    return next((one for one in named if one.kind == kind and one.subject == subject), None)
