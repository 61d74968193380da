# Finds a Structure whose terms are fixed: each kind of work, its square, products of two, a constant. With
# fewer parameters than bends it extrapolates farther where times are sums. Randomness comes as a generator.
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from otel_llmprism.baseline.expected.descent import descend
from otel_llmprism.baseline.expected.settings import FitSettings
from otel_llmprism.baseline.expected.structure import SMALLEST_WORK, Structure, add_logs
from otel_llmprism.baseline.expected.structure_fit import find_range
from otel_llmprism.model.steps import F64

RESOURCES = 3
MULTIPLIED = 6  # features of which products are formed
ROWS = 2500
ROUNDS = 40
STARTS = 2
BOUND = 20.0
MAX_SHARPNESS = 12.0
SMALL_SHARE = 1e-3  # a term that is nowhere more of its resource's time is left out
RELUCTANCE = 4.0  # e^-4: how much less of the time a term of two kinds of work begins with
ABSENT = -1000.0
HINGE_BELOW = float(np.log(1e-4))  # of the smallest work: nothing bends where steps are


@dataclass(frozen=True, slots=True)
class _Sums:
    """The law whose parameters are the terms' levels above their largest value, and raw sharpness."""

    log_terms: F64  # terms of one resource x rows; each resource may weigh all of them
    target: F64

    def limit(self, theta: F64) -> F64:
        limited = np.clip(theta, -BOUND, BOUND)
        limited[-1] = min(limited[-1], np.log(MAX_SHARPNESS - 1.0))
        return limited

    def evaluate(self, theta: F64) -> tuple[F64, F64, F64]:
        """Return ln T, the resources' logs, and each term's share of its resource."""
        logs = self.log_terms + theta[:-1].reshape(RESOURCES, -1, 1)
        busy = add_logs(logs, 1)
        p = 1.0 + np.exp(theta[-1])
        return add_logs(p * busy, 0) / p, busy, np.exp(logs - busy[:, None])

    def predict(self, theta: F64) -> F64:
        return self.evaluate(theta)[0]

    def predict_with_slope(self, theta: F64) -> tuple[F64, F64]:
        joined, busy, of_term = self.evaluate(theta)
        p = 1.0 + np.exp(theta[-1])
        of_resource = np.exp(p * (busy - joined))
        share = (of_resource[:, None] * of_term).reshape(-1, len(joined))
        by_sharp = ((of_resource * busy).sum(axis=0) - joined) / p * (p - 1.0)
        return joined, np.concatenate([share, by_sharp[None]])


def fit_linear(work: F64, target: F64, settings: FitSettings, rng: np.random.Generator) -> Structure:
    """Return the best structure found; the same for the same generator."""
    rows = rng.permutation(len(target))[:ROWS]
    powers = list_powers(work.shape[1])
    log_terms = powers @ np.log(np.maximum(work[rows], SMALLEST_WORK)).T
    scale = log_terms.max(axis=1)
    middle = float(np.median(target))
    # Squares and products must earn their weight: beyond the trained range they overshoot.
    scale = scale + RELUCTANCE * np.maximum(powers.sum(axis=1) - 1.0, 0.0)
    law = _Sums(np.maximum(log_terms - scale[:, None], -700.0), target[rows] - middle)
    starts = [
        np.append(rng.normal(-2.5, 2.0, RESOURCES * len(powers)), np.log(2.0))
        for _ in range(min(STARTS, settings.starts))
    ]
    theta, _ = min((descend(law, start, ROUNDS) for start in starts), key=lambda found: found[1])
    low, _ = find_range(np.log(np.maximum(work, SMALLEST_WORK)).T)
    return _to_structure(law, theta, powers, middle - scale, low + HINGE_BELOW)


def _to_structure(law: _Sums, theta: F64, powers: F64, shift: F64, log_hinge: F64) -> Structure:
    """Keep the terms that matter somewhere; each resource gets as many places as the fullest needs."""
    _, _, of_term = law.evaluate(theta)
    matters = of_term.max(axis=2) > SMALL_SHARE
    most = int(matters.sum(axis=1).max())
    level = np.full((1, RESOURCES * most), ABSENT)
    power = np.zeros((1, RESOURCES * most, powers.shape[1]))
    levels = theta[:-1].reshape(RESOURCES, -1) + shift + powers @ log_hinge
    for resource in range(RESOURCES):
        kept = np.flatnonzero(matters[resource])
        places = resource * most + np.arange(len(kept))
        level[0, places] = levels[resource, kept]
        power[0, places] = powers[kept]
    hinge = np.broadcast_to(log_hinge, power.shape).copy()
    return Structure(RESOURCES, level, hinge, power, np.array([1.0 + np.exp(theta[-1])]))


def list_powers(features: int) -> F64:
    """Return terms x features: the power of each feature in each term."""
    places: list[tuple[int, ...]] = [()]
    places += [(feature,) for feature in range(features)]
    places += list(combinations_with_replacement(range(min(features, MULTIPLIED)), 2))
    powers = np.zeros((len(places), features))
    for term, chosen in enumerate(places):
        for feature in chosen:
            powers[term, feature] += 1.0
    return powers
