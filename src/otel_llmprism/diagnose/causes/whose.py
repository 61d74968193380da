# Whom a shortage struck: one rank of several, or the engine as a whole; and how long its threads waited.
import math
from collections.abc import Mapping

from otel_llmprism.diagnose.causes.case import Case, Change
from otel_llmprism.diagnose.kinds import Domain, SubjectType
from otel_llmprism.model.findings import Subject

_DOMINANT = 0.7  # of what all ranks lost


def find_struck(case: Case, node: str) -> Subject:
    """Return the rank that lost nearly all of it, else the engine."""
    return name_struck(case, measure_own_delays(case) or measure_rank_waits(case, node))


def name_struck(case: Case, lost: Mapping[int, float]) -> Subject:
    """Return the rank that has nearly all of the loss of several, else the engine."""
    total = sum(lost.values())
    if len(lost) >= 2 and total > 0:
        rank, most = max(lost.items(), key=lambda item: item[1])
        if most >= _DOMINANT * total:
            return Subject(SubjectType.RANK, str(rank))
    return case.engine


def compare_waits(case: Case, node: str) -> Change | None:
    """Return how long the engine's threads wait for a processor, against healthy time.

    By process, and only what grew: while one rank is held back the others sleep, and wait less than before.
    """
    names = case.facts.hosts[node].ring.list_names("wait/")
    if case.domain is Domain.FRONT_END:  # held up by its own processes, not by those that compute steps
        names = [name for name in names if name == "wait/rest"]
    changes = [change for name in names if (change := case.compare_host(node, name)) is not None]
    if not changes:
        return None
    expected = sum(change.expected for change in changes)
    grown = sum(max(0.0, change.delta) for change in changes)
    noise = math.sqrt(sum(change.noise**2 for change in changes))
    return Change("wait", expected + grown, expected, noise)


def measure_own_delays(case: Case) -> dict[int, float]:
    """Return by how much each rank's own time grew, in seconds per second, beyond what the work explains."""
    delays = {}
    for name in case.facts.bins.list_names("rank/"):
        rank, _, what = name.removeprefix("rank/").partition("/")
        if what != "own":
            continue
        change = case.compare(name, "expected_s", "s/s")
        told, steps = case.sum(f"rank/{rank}/told"), case.sum("steps")
        if change is not None and told > 0 and steps > 0:
            # Of sampled steps only some tell: scaled to all of them.
            delays[int(rank)] = max(0.0, change.delta) * case.sum("expected_s") / case.wall_s * steps / told
    return delays


def measure_rank_waits(case: Case, node: str) -> dict[int, float]:
    """Return by how much the time that each rank's threads wait for a processor grew."""
    waits = {}
    for name in case.facts.hosts[node].ring.list_names("wait/rank"):
        change = case.compare_host(node, name)
        if change is not None:
            waits[int(name.removeprefix("wait/rank"))] = max(0.0, change.delta)
    return waits
