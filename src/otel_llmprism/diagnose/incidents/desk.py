# Decides, engine by engine, what opens, changes and closes: triggers and examinations in, the book's changes
# out. Waits for evidence as long as the delay allows, and no longer.
from dataclasses import dataclass, field, replace

from otel_llmprism.diagnose.causes.case import Candidate
from otel_llmprism.diagnose.facts.engine import EngineFacts
from otel_llmprism.diagnose.facts.reference import Reference
from otel_llmprism.diagnose.facts.steps import SlowStep
from otel_llmprism.diagnose.incidents.book import IncidentBook
from otel_llmprism.diagnose.incidents.examine import Examination, describe_best, examine, find_named
from otel_llmprism.diagnose.incidents.excess import measure_excess
from otel_llmprism.diagnose.incidents.incident import Diagnosed, Incident
from otel_llmprism.diagnose.incidents.triggers import Trigger, find_triggers
from otel_llmprism.diagnose.kinds import RESOURCE_KINDS, Domain, FindingKind, SubjectType
from otel_llmprism.diagnose.settings import S_NS, DiagnosisConfig
from otel_llmprism.model.findings import StepRef

_LOOK_EVERY_NS = S_NS  # while an incident is young
_YOUNG_NS = 15 * S_NS
_LOOKS_TO_CHANGE = 2  # that agree, before an incident is named anew
_SHARED_SHARE = 0.15  # of the excess, enough to join what was found on the same host already
_SAME_ONSET_NS = 5 * S_NS
_SLOW_NS = 3 * S_NS
_HEAR_STEPS_NS = 3 * S_NS


@dataclass(slots=True)
class Pending:
    """A trigger that waits for evidence."""

    first_ns: int
    onset_ns: int


@dataclass(slots=True)
class IncidentDesk:
    config: DiagnosisConfig
    book: IncidentBook
    pending: dict[tuple[str, Domain], Pending] = field(default_factory=dict)
    doubts: dict[str, int] = field(default_factory=dict)  # looks in a row that named another cause
    looked_ns: dict[str, int] = field(default_factory=dict)

    def review(self, facts: EngineFacts, now_ns: int) -> None:
        """Follow one engine's triggers."""
        triggers = list(find_triggers(facts, self.config, now_ns))
        standing = {(facts.engine_id, trigger.domain) for trigger in triggers}
        for trigger in triggers:
            facts.note_unhealthy(trigger.onset_ns, trigger.end_ns)
            incident = self.book.find_claiming(facts.engine_id, trigger.domain, trigger.onset_ns)
            if incident is not None:
                self._follow(incident, facts, trigger, now_ns)
            elif trigger.is_over and not self._may_be_victim(facts.engine_id, trigger, standing, now_ns):
                self._weigh(facts, trigger, now_ns)
        for key in [key for key in self.pending if key[0] == facts.engine_id and key not in standing]:
            del self.pending[key]
        # A slow step may need a look at its host that is still to come.
        facts.slow = [slow for slow in facts.slow if slow.time_ns > facts.newest_ns - _SLOW_NS]

    def close_quiet(self, engines: dict[str, EngineFacts], now_ns: int) -> None:
        """Close incidents that are over, with the step at which they recovered."""
        for incident in self.book.close_quiet(now_ns):
            facts = engines.get(incident.engine_id)
            if facts is not None and facts.run == incident.run:
                incident.add_step(facts.find_step(incident.last_over_ns, "recovery"))
            self.doubts.pop(incident.id, None)
            self.looked_ns.pop(incident.id, None)

    def _may_be_victim(
        self, engine_id: str, trigger: Trigger, standing: set[tuple[str, Domain]], now_ns: int
    ) -> bool:
        """Return whether requests suffer while steps are suspected: those are heard first, for a while."""
        if trigger.domain in {Domain.STEPS, Domain.SILENCE} or (engine_id, Domain.STEPS) not in standing:
            return False
        if self.book.find_claiming(engine_id, Domain.STEPS, trigger.onset_ns) is not None:
            return False
        pending = self.pending.setdefault((engine_id, trigger.domain), Pending(now_ns, trigger.onset_ns))
        return now_ns < pending.first_ns + _HEAR_STEPS_NS

    def _weigh(self, facts: EngineFacts, trigger: Trigger, now_ns: int) -> None:
        key = (facts.engine_id, trigger.domain)
        pending = self.pending.setdefault(key, Pending(now_ns, trigger.onset_ns))
        pending.onset_ns = min(pending.onset_ns, trigger.onset_ns)
        trigger = replace(trigger, onset_ns=pending.onset_ns)
        examination = examine(facts, trigger, self.config)
        if not examination.ranked:
            return
        if not examination.is_clear and now_ns < self._find_deadline(pending, trigger):
            return
        examination = self._prefer_shared(examination, facts)
        diagnosed = describe_best(examination, trigger.excess.share)
        share = trigger.excess.share
        if self.book.is_barred(diagnosed, facts.engine_id, trigger.domain, share, now_ns):
            return
        slow = max(facts.slow, key=lambda one: one.cycle_s - one.expected_s, default=None)
        incident = build_incident(facts, trigger, diagnosed, now_ns)
        incident.add_step(facts.find_step(trigger.onset_ns, "onset"))
        incident.add_step(_name_worst(slow, facts.run))
        self._account(incident, facts, trigger)
        self.book.open(incident, now_ns)
        del self.pending[key]

    def _find_deadline(self, pending: Pending, trigger: Trigger) -> int:
        """Return when to open with what there is: large shifts are told of within two seconds."""
        if trigger.shift >= self.config.large_shift or trigger.is_single:
            return pending.onset_ns + int(self.config.wait_large_s * S_NS)
        return pending.first_ns + int(self.config.wait_small_s * S_NS)

    def _prefer_shared(self, examination: Examination, facts: EngineFacts) -> Examination:
        """Put a shortage first that is an open incident of this host already, if it has a part in this."""
        first = examination.ranked[0]
        for incident in self.book.incidents.values():
            seen = incident.diagnosed
            is_here = seen.subject.type == SubjectType.HOST and seen.subject.id in facts.hosts
            if not (incident.is_open and is_here and seen.kind in RESOURCE_KINDS):
                continue
            is_same_time = abs(incident.onset_ns - examination.case.onset_ns) <= _SAME_ONSET_NS
            same = (
                one for one in examination.ranked if one.kind == seen.kind and one.subject == seen.subject
            )
            part = next(same, first)
            if is_same_time and part is not first and part.explained >= _SHARED_SHARE:
                rest = tuple(other for other in examination.ranked if other is not part)
                return replace(examination, ranked=(part, *rest))
        return examination

    def _follow(self, incident: Incident, facts: EngineFacts, trigger: Trigger, now_ns: int) -> None:
        """Keep an open incident's account, and look again whether it is named rightly."""
        incident.last_over_ns = max(incident.last_over_ns, trigger.end_ns)
        incident.share = max(incident.share, trigger.excess.share)
        if trigger.domain is incident.domain:
            self._account(incident, facts, trigger)
        for slow in facts.slow:
            self._note_worst(incident, slow, facts.run)
        age_ns = now_ns - incident.opened_ns
        every_ns = _LOOK_EVERY_NS if age_ns < _YOUNG_NS else int(self.config.update_every_s * S_NS)
        is_due = now_ns - self.looked_ns.get(incident.id, 0) >= every_ns
        if is_due and trigger.domain is incident.domain and facts.engine_id == incident.engine_id:
            self.looked_ns[incident.id] = now_ns
            same_onset = replace(trigger, onset_ns=min(trigger.onset_ns, incident.onset_ns))
            self._look_again(incident, examine(facts, same_onset, self.config), now_ns)

    def _look_again(self, incident: Incident, examination: Examination, now_ns: int) -> None:
        if not examination.ranked:
            return
        seen, first = incident.diagnosed, examination.ranked[0]
        still = find_named(examination.ranked, seen.kind, seen.subject)
        if (first.kind, first.subject) == (seen.kind, seen.subject):
            self.doubts.pop(incident.id, None)
            self.book.update(incident, describe_best(examination, incident.share), now_ns)
        elif self._is_better(seen, first, still):
            self.doubts[incident.id] = self.doubts.get(incident.id, 0) + 1
            if self.doubts[incident.id] >= _LOOKS_TO_CHANGE:
                self.doubts.pop(incident.id)
                self.book.update(incident, describe_best(examination, incident.share), now_ns)

    def _is_better(self, seen: Diagnosed, first: Candidate, still: Candidate | None) -> bool:
        """A vague name gives way to a clear one; a clear one only when it explains nothing any more."""
        is_clear = (
            first.explained >= self.config.clear_share and first.kind is not FindingKind.STEP_REGRESSION
        )
        return is_clear and (seen.kind is FindingKind.STEP_REGRESSION or still is None)

    def _account(self, incident: Incident, facts: EngineFacts, trigger: Trigger) -> None:
        begin_ns = incident.accounted_ns.get(facts.engine_id, trigger.onset_ns)
        incident.accounted_ns[facts.engine_id] = max(begin_ns, trigger.end_ns)
        if trigger.domain is Domain.SILENCE:
            incident.excess_s = trigger.excess.lost_s
            incident.lost_request_s = trigger.excess.lost_request_s
            return
        reference = Reference(trigger.onset_ns, facts.unhealthy, facts.kept_normals)
        lost = measure_excess(facts, trigger.domain, reference, begin_ns, trigger.end_ns)
        incident.excess_s += max(0.0, lost.lost_s)
        incident.lost_request_s += max(0.0, lost.lost_request_s)

    def _note_worst(self, incident: Incident, slow: SlowStep, run: str) -> None:
        if slow.cycle_s - slow.expected_s > incident.worst_s:
            incident.worst_s = slow.cycle_s - slow.expected_s
            incident.add_step(_name_worst(slow, run))


def build_incident(facts: EngineFacts, trigger: Trigger, diagnosed: Diagnosed, now_ns: int) -> Incident:
    """Return a new incident, without an id yet."""
    return Incident(
        id="",
        domain=trigger.domain,
        engine_id=facts.engine_id,
        run=facts.run,
        diagnosed=diagnosed,
        onset_ns=trigger.onset_ns,
        opened_ns=now_ns,
        updated_ns=now_ns,
        last_over_ns=trigger.end_ns,
        share=trigger.excess.share,
        engines=(facts.engine_id,),
    )


def _name_worst(slow: SlowStep | None, run: str) -> StepRef | None:
    return None if slow is None else StepRef(run, slow.step, "worst")
