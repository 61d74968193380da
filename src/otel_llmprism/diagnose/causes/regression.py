# Slow, and nothing that was measured explains it.
from collections.abc import Iterator, Sequence

from otel_llmprism.diagnose.causes.case import Candidate, Case
from otel_llmprism.diagnose.kinds import FindingKind
from otel_llmprism.model.findings import Evidence

_LEAST = 0.05


def find_regression(case: Case, others: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield what is left of the excess after the best other cause."""
    explained = max((one.explained for one in others), default=0.0)
    evidence = [
        Evidence(
            "busy time of steps", case.sum("scored_s"), case.sum("expected_s"), "s", "in the window looked at"
        )
    ]
    for name in ("execute_s", "sample_s", "output_s"):
        change = case.compare(name)
        if change is not None and change.is_notable(0.0002):
            evidence.append(change.to_evidence("per step"))
    share = max(_LEAST, 1.0 - explained)
    yield Candidate(FindingKind.STEP_REGRESSION, case.engine, share, tuple(evidence))
