# How much time an engine loses, by whose time it is: the design's opening rule is stated in these terms.
from dataclasses import dataclass

from otel_llmprism.diagnose.facts.engine import EngineFacts
from otel_llmprism.diagnose.facts.reference import Normal, Reference
from otel_llmprism.diagnose.kinds import Domain


@dataclass(frozen=True, slots=True)
class Excess:
    """Seconds lost between two times; `share` is of busy time, or of request-seconds."""

    lost_s: float
    lost_request_s: float
    share: float


def measure_excess(
    facts: EngineFacts,
    domain: Domain,
    reference: Reference,
    begin_ns: int,
    end_ns: int,
    *,
    window_ns: int = 0,
) -> Excess:
    """Return what was lost from begin to end; the share is of the window before the end, if one is given.

    What was gained before an onset does not pay for what is lost since.
    """
    window = min(begin_ns, end_ns - window_ns)
    if domain is Domain.FRONT_END:
        return _measure_front_end(facts, reference, begin_ns, end_ns, window)
    if domain is Domain.QUEUE:
        return _measure_queue(facts, reference, begin_ns, end_ns, window)
    return _measure_steps(facts, reference, begin_ns, end_ns, window)


def _measure_steps(
    facts: EngineFacts, reference: Reference, begin_ns: int, end_ns: int, window_ns: int
) -> Excess:
    total, window = _Sums(facts, begin_ns, end_ns), _Sums(facts, window_ns, end_ns)
    usual_gap = _zero_if_untold(reference.read_ratio(facts.bins, "gap_s", "steps"))
    gap_s = max(0.0, total.sum("gap_s") - usual_gap * total.sum("steps"))
    busy_s, requests_s = total.sum("busy_s"), total.sum("request_s")
    lost_s = total.sum("excess_s") + gap_s
    span_s = busy_s + total.sum("gap_s")
    people = requests_s / span_s if span_s > 0 else 0.0
    return Excess(lost_s, total.sum("lost_s") + gap_s * people, _divide(lost_s, window.sum("busy_s")))


def _measure_front_end(
    facts: EngineFacts, reference: Reference, begin_ns: int, end_ns: int, window_ns: int
) -> Excess:
    total, window = _Sums(facts, begin_ns, end_ns), _Sums(facts, window_ns, end_ns)
    lost_s, everything_s = 0.0, window.sum("request_s")
    for name in ("front_in", "front_out"):
        usual = _zero_if_untold(reference.read_ratio(facts.bins, f"{name}/s", f"{name}/n"))
        everything_s += window.sum(f"{name}/s")
        lost_s += max(0.0, total.sum(f"{name}/s") - usual * total.sum(f"{name}/n"))
    return Excess(lost_s, lost_s, _divide(lost_s, everything_s))


def _measure_queue(
    facts: EngineFacts, reference: Reference, begin_ns: int, end_ns: int, window_ns: int
) -> Excess:
    total, window = _Sums(facts, begin_ns, end_ns), _Sums(facts, window_ns, end_ns)
    usual = _zero_if_untold(reference.read_rate(facts.bins, "waiting_s"))
    lost_s = max(0.0, total.sum("waiting_s") - usual * (end_ns - begin_ns) / 1e9)
    return Excess(lost_s, lost_s, _divide(lost_s, window.sum("request_s")))


class _Sums:
    def __init__(self, facts: EngineFacts, begin_ns: int, end_ns: int) -> None:
        self._facts, self._begin_ns, self._end_ns = facts, begin_ns, end_ns

    def sum(self, name: str) -> float:
        return self._facts.bins.sum_between(name, self._begin_ns, self._end_ns)


def _divide(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _zero_if_untold(normal: Normal) -> float:
    return normal.centre if normal.count else 0.0
