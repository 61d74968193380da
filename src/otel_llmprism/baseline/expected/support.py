# Where a model has seen work, and how far its answers scatter there: a bounded set of trained places, and the
# spread of out-of-fold residuals by region of expected time. Knows no structure and no trees.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.steps import F64, U8

MAX_PLACES = 256
MAX_REGIONS = 8
REGION_ROWS = 60  # fewer residuals than that tell no spread of their own
NEAR = 0.25  # doublings beyond the reach of the trained places within which nothing widens
KNOWN = 1.0  # doublings beyond that reach up to which work counts as seen
SMALLEST_SPREAD = 1e-4
NORMAL_68, NORMAL_95 = 1.0, 1.959964


@dataclass(frozen=True, slots=True)
class Support:
    """Trained places in log2(1 + work), and the spread by expected log time."""

    places: F64  # places x features
    reach: float  # doublings: no trained work is farther from its nearest place
    edges: F64  # ln expected time, ascending: where a region ends
    spread: F64  # one more than edges
    widening: float  # per doubling, in quadrature

    def measure_distance(self, work: F64) -> F64:
        """Return each row's doublings beyond the trained places, in the feature that is farthest off."""
        beyond: F64 = np.maximum(0.0, find_nearest(np.log2(1.0 + work), self.places) - self.reach)
        return beyond

    def read_spread(self, log_expected: F64, distance: F64) -> F64:
        """Return the standard deviation of ln(cycle / expected) to reckon with."""
        at_home = self.spread[np.searchsorted(self.edges, log_expected)]
        away = self.widening * np.maximum(0.0, distance - NEAR)
        spread: F64 = np.sqrt(at_home**2 + away**2)
        return spread


def find_nearest(log_work: F64, places: F64) -> F64:
    """Return each row's distance to its nearest place: that of the feature that is farthest off."""
    nearest = np.zeros(len(log_work))
    if not log_work.shape[1]:
        return nearest
    for begin in range(0, len(log_work), 256):
        rows = log_work[begin : begin + 256]
        farthest = np.zeros((len(rows), len(places)))
        for feature in range(log_work.shape[1]):
            np.maximum(farthest, np.abs(rows[:, feature, None] - places[:, feature]), out=farthest)
        nearest[begin : begin + 256] = farthest.min(axis=1)
    return nearest


def tell_known(distance: F64, is_new_mode: U8) -> U8:
    """Return 0 for work that nothing in the training was like."""
    known: U8 = ((distance <= KNOWN) & (is_new_mode == 0)).astype(np.uint8)
    return known


def learn_support(
    work: F64, log_expected: F64, residual: F64, widening: float, rng: np.random.Generator
) -> Support:
    """Choose the places, spread out, and measure the scatter of out-of-fold residuals by region."""
    edges = _choose_edges(log_expected)
    region = np.searchsorted(edges, log_expected)
    spread = np.array([measure_spread(residual[region == number]) for number in range(len(edges) + 1)])
    log_work = np.log2(1.0 + work)
    places = _choose_places(log_work, rng)
    reach = float(find_nearest(log_work, places).max(initial=0.0))
    return Support(places, reach, edges, spread, widening)


def measure_spread(residual: F64) -> float:
    """Return a normal's deviation that covers 68 % and 95 % of the residuals at least."""
    size = np.abs(residual)
    inner, outer = np.quantile(size, [0.6827, 0.95], method="higher")
    return float(max(inner / NORMAL_68, outer / NORMAL_95, SMALLEST_SPREAD))


def _choose_edges(log_expected: F64) -> F64:
    regions = max(1, min(MAX_REGIONS, len(log_expected) // REGION_ROWS))
    edges: F64 = np.unique(np.quantile(log_expected, np.arange(1, regions) / regions))
    # An edge that leaves a region empty tells nothing.
    counts = np.bincount(np.searchsorted(edges, log_expected), minlength=len(edges) + 1)
    while len(edges) and counts.min() < REGION_ROWS // 2:
        edges = np.delete(edges, min(int(counts.argmin()), len(edges) - 1))
        counts = np.bincount(np.searchsorted(edges, log_expected), minlength=len(edges) + 1)
    return edges


def _choose_places(log_work: F64, rng: np.random.Generator) -> F64:
    """Farthest-point sampling over the distinct cells, so that rare work keeps its place."""
    cells = np.unique(np.round(log_work * 4) / 4, axis=0)
    if len(cells) <= MAX_PLACES:
        return cells
    if len(cells) > 20 * MAX_PLACES:
        cells = cells[np.sort(rng.permutation(len(cells))[: 20 * MAX_PLACES])]
    chosen = [0]
    far = np.abs(cells - cells[0]).max(axis=1)
    for _ in range(MAX_PLACES - 1):
        chosen.append(int(far.argmax()))
        far = np.minimum(far, np.abs(cells - cells[chosen[-1]]).max(axis=1))
    places: F64 = cells[np.sort(chosen)]
    return places
