# Which kept steps a request's decode span links to: the first, the slowest and the latest of them, at
# most 16. Bounded also when every step is kept and the request runs for hours.
from dataclasses import dataclass, field

MAX_LINKS = 16
_FIRST, _LATEST = 5, 5
_PRUNE_ABOVE = 64


@dataclass(slots=True)
class KeptSteps:
    """(step id, cycle ns) in order of the steps."""

    _first: list[tuple[int, int]] = field(default_factory=list)
    _later: list[tuple[int, int]] = field(default_factory=list)

    def add(self, step_id: int, cycle_ns: int) -> None:
        if len(self._first) < _FIRST:
            self._first.append((step_id, cycle_ns))
            return
        self._later.append((step_id, cycle_ns))
        if len(self._later) > _PRUNE_ABOVE:
            self._later = _pick(self._later, MAX_LINKS)

    def choose(self) -> list[int]:
        """Return the step ids to link to, in order."""
        return [step for step, _ in self._first + _pick(self._later, MAX_LINKS - len(self._first))]


def _pick(steps: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    latest, rest = steps[-_LATEST:], steps[:-_LATEST]
    slowest = sorted(rest, key=lambda step: step[1], reverse=True)[: count - _LATEST]
    return sorted(slowest) + latest
