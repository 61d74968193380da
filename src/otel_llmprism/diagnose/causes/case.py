# One suspected incident as every family of causes sees it: what is lost, since when, and how each signal
# compares with healthy time. Asks the facts; knows no cause.
import math
from dataclasses import dataclass

import numpy as np

from otel_llmprism.diagnose.facts.engine import EngineFacts
from otel_llmprism.diagnose.facts.reference import Normal, Reference
from otel_llmprism.diagnose.kinds import Domain, FindingKind, SubjectType
from otel_llmprism.model.findings import Evidence, Subject

# A change is notable when it is beyond noise; few healthy seconds make the noise wider.
_NOISE_SPREADS = 3.0
_MIN_RELATIVE_SPREAD = 0.02
_UNSURE_SECONDS = 8.0
_MIN_LOOK_S = 0.25  # of fault time in a host's look, less is too little to tell


@dataclass(frozen=True, slots=True)
class Change:
    """A signal now and in healthy time. `noise` is what the difference must exceed."""

    signal: str
    observed: float
    expected: float
    noise: float
    unit: str = "s/s"

    @property
    def delta(self) -> float:
        return self.observed - self.expected

    def is_notable(self, floor: float) -> bool:
        """Return whether it rose by more than noise and by more than what matters."""
        return self.delta > max(self.noise, floor)

    def to_evidence(self, detail: str = "") -> Evidence:
        return Evidence(self.signal, self.observed, self.expected, self.unit, detail)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible cause; `explained` is its share of the lost time, 0 to 1."""

    kind: FindingKind
    subject: Subject
    explained: float
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Case:
    domain: Domain
    facts: EngineFacts
    onset_ns: int
    begin_ns: int  # of the window looked at: the onset, or later when it lasts long
    end_ns: int
    excess_rate: float  # lost seconds per second of real time, in the window
    reference: Reference

    @property
    def wall_s(self) -> float:
        return max(0.001, (self.end_ns - self.begin_ns) / 1e9)

    @property
    def engine(self) -> Subject:
        return Subject(SubjectType.ENGINE, self.facts.engine_id)

    def share(self, lost_rate: float) -> float:
        """Return what part of the excess such a loss explains."""
        if not self.excess_rate > 0 or not lost_rate > 0:
            return 0.0
        return min(1.0, lost_rate / self.excess_rate)

    def sum(self, name: str) -> float:
        return self.facts.bins.sum_between(name, self.begin_ns, self.end_ns)

    def compare(self, above: str, below: str = "steps", unit: str = "s") -> Change | None:
        """Compare one sum per another with healthy time; None where either is untold."""
        bottom = self.sum(below)
        normal = self.reference.read_ratio(self.facts.bins, above, below)
        if bottom <= 0 or math.isnan(normal.centre):
            return None
        return _build_change(f"{above} / {below}", self.sum(above) / bottom, normal, unit)

    def compare_rate(self, name: str, unit: str = "1/s") -> Change:
        """Compare a sum per second; no healthy time is taken for nothing."""
        normal = self.reference.read_rate(self.facts.bins, name)
        return _build_change(name, self.sum(name) / self.wall_s, normal, unit)

    def compare_host(
        self, node: str, name: str, default: float = math.nan, unit: str = "s/s"
    ) -> Change | None:
        """Compare a host's signal; where healthy time told nothing it is taken for `default`."""
        ring = self.facts.hosts[node].ring
        normal = self.reference.read_host(node, ring, name)
        if math.isnan(normal.centre):
            normal = Normal(default, 0.0, 0)
        observed = self._observe_host(node, name, normal.centre)
        if math.isnan(observed) or math.isnan(normal.centre):
            return None
        return _build_change(name, observed, normal, unit)

    def _observe_host(self, node: str, name: str, normal: float) -> float:
        """Return the mean in the window; what a look holds of before is taken out at its normal."""
        ring = self.facts.hosts[node].ring
        looks = ring.list_overlaps(self.begin_ns, self.end_ns + 500_000_000)
        values = ring.read(name, looks)
        is_told = np.isfinite(values)
        begin, end = (times[is_told] for times in ring.read_times(looks))
        if not len(begin):
            return math.nan
        before_s = np.maximum(0, self.begin_ns - begin) / 1e9
        inside_s = (end - begin) / 1e9 - before_s
        covered_s = float(inside_s.sum())
        if covered_s < _MIN_LOOK_S:
            return math.nan
        usual = normal if math.isfinite(normal) else 0.0
        amount = float(np.sum(values[is_told] * (end - begin) / 1e9)) - usual * float(before_s.sum())
        return max(0.0, amount / covered_s)


def measure_host_cover(case: Case) -> float:
    """Return the longest part of the window, in seconds, that a host's looks cover."""
    covers = [0.0]
    for host in case.facts.hosts.values():
        begin, end = host.ring.read_times(host.ring.list_overlaps(case.begin_ns, case.end_ns))
        inside = np.minimum(end, case.end_ns) - np.maximum(begin, case.begin_ns)
        covers.append(float(np.sum(inside)) / 1e9)
    return max(covers)


def _build_change(signal: str, observed: float, normal: Normal, unit: str) -> Change:
    expected = 0.0 if math.isnan(normal.centre) else normal.centre
    spread = max(normal.spread, _MIN_RELATIVE_SPREAD * abs(expected))
    noise = _NOISE_SPREADS * spread * math.sqrt(1 + _UNSURE_SECONDS / max(1, normal.count))
    return Change(signal, observed, expected, noise, unit)
