# A queue that does not drain while steps take what their work explains: no room for more, or too much asked.
from collections.abc import Iterator

from otel_llmprism.diagnose.causes.case import Candidate, Case, Change
from otel_llmprism.diagnose.kinds import FindingKind

_FULL_CACHE = 0.9
_MIN_PREEMPTIONS_PER_S = 0.2
_SLOW_STEPS = 0.05  # of busy time: then the steps are the cause, and the queue is their victim


def find_load(case: Case) -> Iterator[Candidate]:
    """Yield want of cache where the cache is full or requests are put back, else overload."""
    waiting = compare_waiting(case)
    busy = case.sum("busy_s")
    scored = case.sum("scored_s")
    if waiting.delta <= 0 or scored <= busy / 2 or case.sum("excess_s") > _SLOW_STEPS * scored:
        return  # without an expectation nobody knows whether steps are as expected
    preemptions = case.compare_rate("preemptions")
    span = busy + case.sum("gap_s")
    usage = case.compare("kv_s", "busy_s", "1")
    filled = case.sum("kv_s") / span
    evidence = [waiting.to_evidence(), preemptions.to_evidence()]
    if usage is not None:
        evidence.append(usage.to_evidence("share of the cache in use"))
    is_put_back = preemptions.is_notable(_MIN_PREEMPTIONS_PER_S)
    is_short = filled >= _FULL_CACHE or (is_put_back and filled >= _FULL_CACHE / 2)
    kind = FindingKind.KV_PRESSURE if is_short else FindingKind.OVERLOAD
    yield Candidate(kind, case.engine, case.share(waiting.delta), tuple(evidence))


def compare_waiting(case: Case) -> Change:
    """Return how many requests wait on average, against healthy time."""
    return case.compare_rate("waiting_s", "{request}")
