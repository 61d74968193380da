# The incidents there are: what opens, joins, changes, closes and comes back, by the times that go in. Knows
# no cause and no engine's facts.
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from otel_llmprism.diagnose.incidents.incident import Diagnosed, Incident, Key, build_key
from otel_llmprism.diagnose.kinds import RESOURCE_KINDS, Domain, FindingKind
from otel_llmprism.diagnose.settings import S_NS, DiagnosisConfig
from otel_llmprism.model.findings import Finding, FindingState

_SLACK_NS = 2 * S_NS


@dataclass(frozen=True, slots=True)
class Dismissal:
    until_ns: int
    bar: float  # the share of time that must be lost before it counts again
    domain: Domain
    engine_id: str


@dataclass(slots=True)
class IncidentBook:
    """Bounded by `config.max_incidents`; what does not fit is counted in `refused`."""

    config: DiagnosisConfig
    ids: Callable[[], str]
    incidents: dict[str, Incident] = field(default_factory=dict)
    dismissals: dict[Key, Dismissal] = field(default_factory=dict)
    told: list[Finding] = field(default_factory=list)  # new states, until they are taken
    refused: int = 0

    def find_claiming(self, engine_id: str, domain: Domain, onset_ns: int) -> Incident | None:
        """Return the open incident that a crossed limit of an engine belongs to."""
        for incident in self.incidents.values():
            if incident.is_open and engine_id in incident.engines and _claims(incident, domain, onset_ns):
                return incident
        return None

    def _find_key(self, key: Key, now_ns: int) -> Incident | None:
        """Return the incident of this key that is open, or closed so lately that it would come back."""
        for incident in self.incidents.values():
            if incident.key == key and not incident.is_dismissed:
                closed_ns = incident.closed_ns
                if closed_ns is None or now_ns - closed_ns <= self.config.reopen_within_s * S_NS:
                    return incident
        return None

    def is_barred(
        self, diagnosed: Diagnosed, engine_id: str, domain: Domain, share: float, now_ns: int
    ) -> bool:
        """Return whether somebody said that this is not an incident, and it is not much worse now."""
        key = build_key(diagnosed.kind, diagnosed.subject, engine_id)
        for dismissed, dismissal in self.dismissals.items():
            if dismissal.until_ns <= now_ns or share >= dismissal.bar:
                continue
            is_same_place = dismissal.engine_id == engine_id and dismissal.domain is domain
            # A guess that changes, or no cause at all, is what was dismissed under another name.
            is_vague = diagnosed.kind == FindingKind.STEP_REGRESSION or diagnosed.explained < 0.5
            if dismissed == key or (is_same_place and is_vague):
                return True
        return False

    def open(self, incident: Incident, now_ns: int) -> Incident | None:
        """Add an incident, or bring back, or join, the one it equals; None when there is no room."""
        found = self._find_key(incident.key, now_ns)
        if found is not None and found.is_open:
            found.add_engine(incident.engine_id)
            found.last_over_ns = max(found.last_over_ns, incident.last_over_ns)
            self._tell(found, FindingState.UPDATED, now_ns)
            return found
        if found is not None:
            self._reopen(found, incident)
            found.updated_ns = now_ns
            self._tell(found, FindingState.OPEN, now_ns)
            return found
        if len(self.incidents) >= self.config.max_incidents and not self._forget_oldest():
            self.refused += 1
            return None
        incident.id = self.ids()
        self.incidents[incident.id] = incident
        self._tell(incident, FindingState.OPEN, now_ns)
        return incident

    def update(self, incident: Incident, diagnosed: Diagnosed, now_ns: int) -> None:
        """Take in a new look; told when kind or subject changed, and now and then while it grows."""
        before = incident.diagnosed
        is_changed = (before.kind, before.subject) != (diagnosed.kind, diagnosed.subject)
        incident.diagnosed = diagnosed
        if is_changed and self._merge(incident, now_ns):
            return
        is_due = now_ns - incident.updated_ns >= self.config.update_every_s * S_NS
        if is_changed or (is_due and incident.excess_s > 1.2 * incident.told_excess_s):
            self._tell(incident, FindingState.UPDATED, now_ns)

    def close_quiet(self, now_ns: int) -> Iterator[Incident]:
        """Close what was within its limits long enough; yield it before it is told."""
        reopen_ns = self.config.reopen_within_s * S_NS
        for incident in list(self.incidents.values()):
            incident.last_over_ns = min(incident.last_over_ns, now_ns)  # a clock was set back
            is_quiet = now_ns - incident.last_over_ns >= self.config.close_after_s * S_NS
            if incident.is_open and is_quiet:
                yield incident
                self.close(incident, now_ns)
            elif incident.closed_ns is not None and now_ns - incident.closed_ns > reopen_ns:
                del self.incidents[incident.id]
        self.dismissals = {key: one for key, one in self.dismissals.items() if one.until_ns > now_ns}

    def close(self, incident: Incident, now_ns: int) -> None:
        incident.closed_ns = now_ns
        self._tell(incident, FindingState.CLOSED, now_ns)

    def dismiss(self, incident: Incident, now_ns: int) -> None:
        """Note that it is none: the same must be twice as bad for a while before it counts again."""
        until_ns = now_ns + int(self.config.dismissed_s * S_NS)
        earlier = self.dismissals.get(incident.key)
        bar = max(2 * incident.share, 2 * self.config.min_excess_share, 2 * earlier.bar if earlier else 0.0)
        self.dismissals[incident.key] = Dismissal(until_ns, bar, incident.domain, incident.engine_id)
        while len(self.dismissals) > self.config.max_incidents:
            del self.dismissals[next(iter(self.dismissals))]
        incident.is_dismissed = True
        if incident.is_open:
            self.close(incident, now_ns)

    def _merge(self, incident: Incident, now_ns: int) -> bool:
        """Close an incident that turns out to be one that is open already."""
        for other in self.incidents.values():
            if other is not incident and other.is_open and other.key == incident.key:
                for engine_id in incident.engines:
                    other.add_engine(engine_id)
                other.last_over_ns = max(other.last_over_ns, incident.last_over_ns)
                self.close(incident, now_ns)
                return True
        return False

    def _reopen(self, found: Incident, again: Incident) -> None:
        found.closed_ns = None
        found.occurrence += 1
        found.run = again.run
        found.diagnosed = again.diagnosed
        found.opened_ns, found.onset_ns = again.opened_ns, again.onset_ns
        found.last_over_ns = again.last_over_ns
        found.share = again.share
        found.add_engine(again.engine_id)
        for step in again.steps:
            found.add_step(step)

    def _tell(self, incident: Incident, state: FindingState, now_ns: int) -> None:
        incident.updated_ns = now_ns
        incident.told_excess_s = incident.excess_s
        self.told.append(incident.to_finding(state))

    def _forget_oldest(self) -> bool:
        closed = [one for one in self.incidents.values() if one.closed_ns is not None]
        if not closed:
            return False
        del self.incidents[min(closed, key=lambda one: one.closed_ns or 0).id]
        return True


def _claims(incident: Incident, domain: Domain, onset_ns: int) -> bool:
    if incident.domain is domain:
        return True
    if incident.domain is Domain.SILENCE:  # the step that hung is slow when it comes at last
        return onset_ns <= incident.last_over_ns + _SLACK_NS
    # Whoever waits for slow steps or a short machine is a victim; the front end is one of the machine alone.
    if incident.domain is Domain.STEPS and domain is Domain.QUEUE:
        return True
    if incident.diagnosed.kind in RESOURCE_KINDS:
        return True
    return incident.diagnosed.kind is FindingKind.SCHEDULER_DELAY and domain is Domain.FRONT_END
