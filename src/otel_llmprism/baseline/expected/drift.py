# How far two models of expected time stand apart on given work: the ratio of their answers, by kind. For
# "drift beyond 5 %" against a frozen reference or a peer. Knows no times that were measured.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.baseline.expected.model import ExpectedTime
from otel_llmprism.model.work import WorkTable


@dataclass(frozen=True, slots=True)
class KindDrift:
    """`median_ratio` is new / old: above 1 the new model expects longer steps."""

    kind: int
    steps: int  # that both models know
    median_ratio: float
    low_ratio: float  # the 10th and the 90th percentile over the steps
    high_ratio: float


@dataclass(frozen=True, slots=True)
class Drift:
    kinds: tuple[KindDrift, ...]
    unanswered: int  # steps that one of the models, or both, do not know

    def find_largest(self) -> float:
        """Return the largest |median ratio - 1| of a kind; 0 when nothing could be compared."""
        return max((abs(kind.median_ratio - 1.0) for kind in self.kinds), default=0.0)


def compare_expected(new: ExpectedTime, old: ExpectedTime, work: WorkTable) -> Drift:
    """Compare only where both models know such work: beyond it they guess."""
    ours, theirs = new.predict(work), old.predict(work)
    both = (ours.is_known == 1) & (theirs.is_known == 1)
    both &= np.isfinite(ours.expected_ns) & np.isfinite(theirs.expected_ns)
    found = []
    for kind in np.unique(work.kind[both]):
        mine = both & (work.kind == kind)
        ratio = ours.expected_ns[mine] / theirs.expected_ns[mine]
        low, middle, high = (float(value) for value in np.quantile(ratio, [0.1, 0.5, 0.9]))
        found.append(KindDrift(int(kind), int(mine.sum()), middle, low, high))
    return Drift(tuple(found), int(len(work) - both.sum()))
