# How well one range or call divides a stream into iterations: whatever a program does in an iteration, it
# does in (nearly) each of them, equally often. What repeats inside an iteration, such as a layer, fails that.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.steps import F64, U32
from otel_llmprism.reconstruct.iterations.activity import I64

MAX_SEGMENTS = 1000  # looked at; the first ones
_WITNESSES, _FILLED = 3, 0.3
_PRESENT = 0.75  # a name belongs to the iteration when it is in so many of them
_SEVERAL = 8  # times inside a segment: as often as a shallow model has layers
_RARE = 3  # names seen less often say little each; together they count like one seen this often


@dataclass(frozen=True, slots=True)
class AnchorScore:
    completeness: float  # share of the names seen that are in nearly every segment
    consistency: float  # of those, how often the count is the usual one
    regularity: float  # 1: gaps between anchors agree; falls towards 0
    coverage: float  # share of the time between anchors that lies inside them
    names: int  # how many names those are
    inner: float  # share of those names that come back several times inside a segment, as layers do

    @property
    def is_witnessed(self) -> bool:
        """Tell whether anything speaks for the anchor: other names in its parts, or that it fills them."""
        return self.names >= _WITNESSES or self.coverage >= _FILLED

    @property
    def total(self) -> float:
        return self.completeness * (0.5 + 0.5 * self.consistency) * (0.7 + 0.3 * self.regularity)


def score_anchor(starts: I64, ends: I64, name: U32, event_start: I64, name_count: int) -> AnchorScore:
    """Return how well `starts` divide the events; at least two starts."""
    starts, ends = starts[: MAX_SEGMENTS + 1], ends[: MAX_SEGMENTS + 1]
    segment = np.searchsorted(starts, event_start, side="right") - 1
    # The last segment may be cut off by the end of the recording: it must not accuse anybody. Of two or three
    # it is needed, or one would be compared with nothing.
    whole = len(starts) - 1 if len(starts) > 3 else len(starts)
    is_inside = (segment >= 0) & (segment < whole)
    cells = segment[is_inside] * name_count + name[is_inside]
    counts = np.bincount(cells, minlength=whole * name_count).reshape(whole, name_count)
    seen = np.bincount(name, minlength=name_count)
    present = (counts > 0).mean(axis=0)
    weight = np.minimum(seen, _RARE) / _RARE
    is_regular = present >= _PRESENT
    completeness = float(weight[is_regular].sum() / max(weight[seen > 0].sum(), 1e-9))
    return AnchorScore(
        completeness,
        _measure_consistency(counts[:, is_regular]),
        _measure_regularity(np.diff(starts)),
        _measure_coverage(starts, ends),
        int(np.count_nonzero(is_regular)),
        _measure_inner(counts[:, is_regular]),
    )


def _measure_consistency(counts: I64) -> float:
    if not counts.size:
        return 0.0
    usual = np.median(counts, axis=0)
    return float((np.abs(counts - usual) <= 0.02 * usual).mean())


def _measure_inner(counts: I64) -> float:
    return float((np.median(counts, axis=0) >= _SEVERAL).mean()) if counts.size else 0.0


def _measure_regularity(gaps: I64) -> float:
    logs: F64 = np.log(np.maximum(gaps, 1))
    scatter = float(np.median(np.abs(logs - np.median(logs)))) if len(logs) > 1 else 0.0
    return 1 / (1 + scatter)


def _measure_coverage(starts: I64, ends: I64) -> float:
    span = int(starts[-1] - starts[0])
    inside = int(np.minimum(ends[:-1] - starts[:-1], np.diff(starts)).sum())
    return inside / span if span > 0 else 0.0
