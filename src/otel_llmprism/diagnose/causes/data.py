# Training that waits for its data.
from collections.abc import Iterator

from otel_llmprism.diagnose.causes.case import Candidate, Case
from otel_llmprism.diagnose.kinds import FindingKind

_MIN_DELAY_S = 0.001


def find_data_stall(case: Case) -> Iterator[Candidate]:
    """Yield the time that steps waited longer for data than in healthy time."""
    change = case.compare("data_s")
    if change is not None and change.is_notable(_MIN_DELAY_S):
        lost = change.delta * case.sum("steps") / case.wall_s
        yield Candidate(
            FindingKind.DATA_STALL, case.engine, case.share(lost), (change.to_evidence("per step"),)
        )
