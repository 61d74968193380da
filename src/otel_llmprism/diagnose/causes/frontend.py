# Time of requests outside the engine: before it hears of them, and after its last token.
from collections.abc import Iterator

from otel_llmprism.diagnose.causes.case import Candidate, Case
from otel_llmprism.diagnose.kinds import FindingKind

_MIN_DELAY_S = 0.001  # a request


def find_frontend_delay(case: Case) -> Iterator[Candidate]:
    """Yield what the front end held requests longer than in healthy time."""
    lost, evidence = 0.0, []
    for name in ("front_in", "front_out"):
        change = case.compare(f"{name}/s", f"{name}/n")
        if change is not None and change.is_notable(_MIN_DELAY_S):
            lost += change.delta * case.sum(f"{name}/n") / case.wall_s
            evidence.append(change.to_evidence("per request"))
    if lost > 0:
        yield Candidate(FindingKind.FRONTEND_DELAY, case.engine, case.share(lost), tuple(evidence))
