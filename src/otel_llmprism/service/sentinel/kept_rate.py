# Which slow steps of an engine become spans: so many a second, ten seconds' worth at once, the largest excess
# first. Time comes in as data.
import numpy as np

from otel_llmprism.model.work import ScoredTable
from otel_llmprism.service.sentinel.work import Rows

_BURST_S = 10.0


class KeptRate:
    """Token bucket of one engine."""

    def __init__(self, steps_per_s: float) -> None:
        self._per_s = steps_per_s
        self._left = steps_per_s * _BURST_S
        self._at_ns = 0

    def choose(self, scored: ScoredTable, candidates: Rows, now_ns: int) -> Rows:
        """Return the candidates (rows of `scored`) that may go, in step order."""
        gained_s = max(0, now_ns - self._at_ns) / 1e9 if self._at_ns else 0.0
        self._left = min(self._per_s * _BURST_S, self._left + gained_s * self._per_s)
        self._at_ns = max(now_ns, self._at_ns)
        excess = scored.cycle_ns[candidates].astype(np.float64) - scored.expected_ns[candidates]
        order = np.argsort(-np.nan_to_num(excess), kind="stable")
        chosen = candidates[order[: int(self._left)]]
        self._left -= len(chosen)
        return np.sort(chosen)
