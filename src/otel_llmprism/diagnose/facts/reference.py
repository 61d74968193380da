# What a signal was in healthy time: robust centre and spread over seconds before the onset, those of open
# incidents left out. Kept while an incident lasts, since the rings forget healthy time sooner.
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otel_llmprism.diagnose.facts.bins import BIN_NS, I64, BinRing
from otel_llmprism.diagnose.facts.host_ring import HostRing
from otel_llmprism.model.steps import F64

REFERENCE_NS = 120_000_000_000
MIN_SECONDS = 4  # fewer do not replace what was kept
_BINS_PER_S = 1_000_000_000 // BIN_NS
MAX_KEPT = 4096
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Normal:
    """`centre` is NaN where healthy time told nothing; `spread` is a standard deviation, >= 0."""

    centre: float
    spread: float
    count: int


UNTOLD = Normal(math.nan, 0.0, 0)


def summarize(values: F64) -> Normal:
    """Return median and scaled median deviation of the finite values."""
    values = values[np.isfinite(values)]
    if not len(values):
        return UNTOLD
    centre = float(np.median(values))
    return Normal(centre, 1.4826 * float(np.median(np.abs(values - centre))), len(values))


class Reference:
    """Healthy time before one onset; `kept` outlives it and is its engine's."""

    def __init__(self, onset_ns: int, unhealthy: Sequence[Span], kept: dict[str, Normal]) -> None:
        self._onset_ns = onset_ns
        self._unhealthy = [span for span in unhealthy if span[0] < onset_ns]
        self._kept = kept

    def read_ratio(self, bins: BinRing, above: str, below: str) -> Normal:
        """Return what `above` is to `below`, by second; seconds without `below` say nothing."""
        chosen = bins.list_bins(self._onset_ns - REFERENCE_NS, self._onset_ns - BIN_NS)
        chosen = chosen[self._is_healthy(chosen * BIN_NS, (chosen + 1) * BIN_NS)]
        tops, bottoms = bins.read(above, chosen), bins.read(below, chosen)
        seconds, own = np.unique(chosen // _BINS_PER_S, return_inverse=True)
        top, bottom = np.zeros(len(seconds)), np.zeros(len(seconds))
        np.add.at(top, own, tops)
        np.add.at(bottom, own, bottoms)
        is_told = bottom > 0
        return self._keep(f"{above} / {below}", summarize(top[is_told] / bottom[is_told]))

    def read_rate(self, bins: BinRing, name: str) -> Normal:
        """Return a sum by second of real time; seconds without anything count as 0."""
        chosen = bins.list_bins(self._onset_ns - REFERENCE_NS, self._onset_ns - BIN_NS)
        chosen = chosen[self._is_healthy(chosen * BIN_NS, (chosen + 1) * BIN_NS)]
        whole = len(chosen) // _BINS_PER_S * _BINS_PER_S
        if not whole:
            return self._keep(name, UNTOLD)
        sums = bins.read(name, chosen[len(chosen) - whole :]).reshape(-1, _BINS_PER_S).sum(axis=1)
        return self._keep(name, summarize(sums))

    def read_host(self, node: str, ring: HostRing, name: str) -> Normal:
        """Return a host signal over looks that ended before the onset."""
        looks = ring.list_looks(self._onset_ns - REFERENCE_NS, self._onset_ns)
        begin, end = ring.read_times(looks)
        return self._keep(f"{node} {name}", summarize(ring.read(name, looks[self._is_healthy(begin, end)])))

    def _is_healthy(self, begin: I64, end: I64) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        is_healthy = np.ones(len(begin), dtype=np.bool_)
        for first, last in self._unhealthy:
            is_healthy &= (end <= first) | (begin >= last)
        return is_healthy

    def _keep(self, key: str, found: Normal) -> Normal:
        if found.count >= MIN_SECONDS or key not in self._kept:
            if found.count and (key in self._kept or len(self._kept) < MAX_KEPT):
                self._kept[key] = found
            return found
        return self._kept[key]
