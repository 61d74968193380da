# One rank that the others wait for, or a link on which all wait: who arrives last and waits least is the
# culprit, and a rank that waits is its victim.
import math
from collections.abc import Iterator

from otel_llmprism.diagnose.causes.case import Candidate, Case, Change
from otel_llmprism.diagnose.causes.whose import measure_own_delays
from otel_llmprism.diagnose.kinds import FindingKind, SubjectType
from otel_llmprism.model.findings import Evidence, Subject

_DOMINANT = 0.7
_MIN_DELAY_S = 0.0002  # a step
_MIN_LOST = 0.01  # seconds per second


def find_rank_causes(case: Case) -> Iterator[Candidate]:
    """Yield the slow rank, or the slow exchange between ranks that are in time."""
    exchange = _find_slow_exchange(case)
    slow = _find_slow_rank(case)
    if exchange is not None:
        yield exchange
    if slow is not None:
        # A sender that a slow link blocks looks busy: what the exchange explains is not its own.
        taken = exchange.explained if exchange is not None else 0.0
        yield Candidate(slow.kind, slow.subject, slow.explained * (1 - taken), slow.evidence)


def _find_slow_rank(case: Case) -> Candidate | None:
    own, late = measure_own_delays(case), _measure_lateness(case)
    lost = late if _is_telling(late) else own
    # Lateness grows with the steps themselves: where all compute longer, who was last is only later.
    if len(lost) < 2 or _is_shared(own):
        return None
    rank, most = max(lost.items(), key=lambda item: item[1])
    rest = max(value for other, value in lost.items() if other != rank)
    if most - rest < _MIN_LOST or _is_shared(lost):
        return None
    evidence = [
        Evidence("late or busy longer than in healthy time", most, rest, "s/s", f"rank {rank}, others")
    ]
    for name in (f"rank/{rank}/own", f"rank/{rank}/wait", f"rank/{rank}/device"):
        change = case.compare(name, "expected_s", "s/s")
        if change is not None:
            evidence.append(change.to_evidence())
    evidence += _list_waits_of_others(case, rank)
    subject = Subject(SubjectType.RANK, str(rank))
    return Candidate(FindingKind.SLOW_WORKER, subject, case.share(most - rest), tuple(evidence))


def _is_shared(lost: dict[int, float]) -> bool:
    """Tell whether several ranks lost alike, which is no rank's fault."""
    ordered = sorted(lost.values(), reverse=True)
    return len(ordered) >= 2 and ordered[0] > _MIN_LOST and ordered[1] > (1 - _DOMINANT) * ordered[0]


def _list_waits_of_others(case: Case, culprit: int) -> list[Evidence]:
    found: list[Evidence] = []
    for name in case.facts.bins.list_names("rank/"):
        rank, _, what = name.removeprefix("rank/").partition("/")
        if what == "wait" and rank != str(culprit) and len(found) < 4:
            change = case.compare(name, "expected_s", "s/s")
            if change is not None:
                found.append(change.to_evidence(f"rank {rank} waits"))
    return found


def _measure_lateness(case: Case) -> dict[int, float]:
    """Return by how much later than in healthy time each rank came to collectives, in seconds per second."""
    late = {}
    steps, seen = case.sum("steps"), case.sum("watched_steps")
    for name in case.facts.bins.list_names("late/"):
        rank, _, what = name.removeprefix("late/").partition("/")
        change = case.compare(name, "watched_steps") if what == "s" else None
        if change is not None and seen > 0:
            delta = change.delta if change.is_notable(_MIN_DELAY_S) else 0.0
            late[int(rank)] = max(0.0, delta) * steps / case.wall_s
    return late


def _is_telling(late: dict[int, float]) -> bool:
    return len(late) >= 2 and max(late.values()) > _MIN_LOST


def _find_slow_exchange(case: Case) -> Candidate | None:
    found = [one for name in _list_exchanges(case) if (one := _judge_exchange(case, name)) is not None]
    if found:
        return max(found, key=lambda one: one.explained)
    return None if case.sum("watched_steps") else _find_common_wait(case)


def _list_exchanges(case: Case) -> list[str]:
    names = case.facts.bins.list_names("exchange/")
    return [name.removesuffix("/s") for name in names if name.endswith("/s")]


def _judge_exchange(case: Case, name: str) -> Candidate | None:
    change = case.compare(f"{name}/s", "watched_steps")
    if change is None:
        return None
    sizes = case.compare(f"{name}/bytes", "watched_steps", "By")
    growth = sizes.observed / sizes.expected if sizes is not None and sizes.expected > 0 else 1.0
    expected = change.expected * max(1.0, growth)  # more bytes may take longer
    fair = Change(change.signal, change.observed, expected, change.noise, change.unit)
    lost = fair.delta * case.sum("steps") / case.wall_s
    if not fair.is_notable(_MIN_DELAY_S) or lost < _MIN_LOST:
        return None
    return _build_exchange(
        case, name.removeprefix("exchange/"), lost, (fair.to_evidence("per watched step"),)
    )


def _find_common_wait(case: Case) -> Candidate | None:
    """Return the link of ranks that all wait longer though none is busier; no collective was watched."""
    changes: dict[int, Change] = {}
    for name in case.facts.bins.list_names("rank/"):
        rank, _, what = name.removeprefix("rank/").partition("/")
        change = case.compare(name, "expected_s", "s/s") if what == "wait" else None
        if change is not None:
            changes[int(rank)] = change
    if len(changes) < 2 or not all(change.is_notable(0.02) for change in changes.values()):
        return None
    least = min(change.delta for change in changes.values()) * case.sum("expected_s") / case.wall_s
    busier = max(measure_own_delays(case).values(), default=math.inf)
    if least < _MIN_LOST or busier > least / 2:
        return None
    ranks = sorted(changes)
    name = "->".join(map(str, ranks)) if len(ranks) == 2 else ",".join(map(str, ranks))
    evidence = tuple(change.to_evidence(f"rank {rank}") for rank, change in list(changes.items())[:8])
    return _build_exchange(case, name, least, evidence)


def _build_exchange(case: Case, name: str, lost: float, evidence: tuple[Evidence, ...]) -> Candidate:
    is_link = "->" in name
    kind = FindingKind.SLOW_LINK if is_link else FindingKind.COMMUNICATION_DELAY
    subject = Subject(SubjectType.LINK if is_link else SubjectType.GROUP, name)
    return Candidate(kind, subject, case.share(lost), evidence)
