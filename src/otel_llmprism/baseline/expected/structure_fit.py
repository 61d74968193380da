# Finds a Structure for log times from several random starts: where terms bend, how steep they rise, what
# queues for what. Randomness comes in as a generator.
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_llmprism.baseline.expected.descent import descend
from otel_llmprism.baseline.expected.settings import FitSettings
from otel_llmprism.baseline.expected.structure import (
    CORNER,
    MAX_POWER,
    SMALLEST_WORK,
    Structure,
    add_logs,
    soften,
)
from otel_llmprism.model.steps import F64

FIRST_ROWS = 500  # a start is judged on so many rows before the best go on
MOST_ROWS = 2000  # more rows make a structure of some hundred parameters slower, not better
FIRST_ROUNDS, MOST_ROUNDS = 15, 40
MAX_SHARPNESS = 16.0
BOUND = 60.0  # of any parameter: e^60 ns is longer than any step
NO_POWER = 4.0  # a raw power of 0, to which the fit leans, is hardly any power
USELESS_POWER = 0.02
POOR = 1.5  # times the best member's cost: a member that stayed in a poor valley would spoil the average


@dataclass(frozen=True, slots=True)
class _Bends:
    """The law whose parameters are, one after the other: levels, log hinges, raw powers, raw sharpness."""

    log_work: F64  # features x rows
    target: F64
    resources: int
    terms: int  # in all

    def shape(self) -> tuple[int, int]:
        return self.terms, len(self.log_work)

    def take(self, rows: npt.NDArray[np.intp]) -> "_Bends":
        return _Bends(self.log_work[:, rows], self.target[rows], self.resources, self.terms)

    def limit(self, theta: F64) -> F64:
        limited = np.clip(theta, -BOUND, BOUND)
        limited[-1] = min(limited[-1], np.log(MAX_SHARPNESS - 1.0))
        return limited

    def predict(self, theta: F64) -> F64:
        return self._evaluate(theta)[0]

    def predict_with_slope(self, theta: F64) -> tuple[F64, F64]:
        terms, features = self.shape()
        _, _, raw, sharp = _split(theta, self)
        power, power_slope = _to_power(raw)
        joined, logs, busy, bends = self._evaluate(theta)
        p = 1.0 + np.exp(sharp)
        of_resource = np.exp(p * (busy - joined))  # its share of the joined time
        of_term = np.exp(logs.reshape(self.resources, -1, len(joined)) - busy[:, None])
        share = (of_resource[:, None] * of_term).reshape(terms, 1, len(joined))
        far = 1.0 - np.exp(-CORNER * bends)  # how far beyond its hinge a row is, 0..1
        by_hinge = (-share * power[:, :, None] * far).reshape(terms * features, len(joined))
        by_power = (share * bends * power_slope[:, :, None]).reshape(terms * features, len(joined))
        by_sharp = ((of_resource * busy).sum(axis=0) - joined) / p * (p - 1.0)
        return joined, np.concatenate([share[:, 0], by_hinge, by_power, by_sharp[None]])

    def _evaluate(self, theta: F64) -> tuple[F64, F64, F64, F64]:
        """Return ln T, the terms' logs, the resources' logs, and the bends."""
        level, hinge, raw, sharp = _split(theta, self)
        bends = soften(CORNER * (self.log_work - hinge[:, :, None])) / CORNER
        logs = level[:, None] + np.einsum("tfn,tf->tn", bends, _to_power(raw)[0])
        busy = add_logs(logs.reshape(self.resources, -1, len(self.target)), 1)
        p = 1.0 + np.exp(sharp)
        return add_logs(p * busy, 0) / p, logs, busy, bends


def fit_structure(work: F64, target: F64, settings: FitSettings, rng: np.random.Generator) -> Structure:
    """Return the average of the best structures found; the same for the same generator."""
    log_work = np.log(np.maximum(work, SMALLEST_WORK)).T
    law = _Bends(log_work, target, settings.resources, settings.resources * settings.terms)
    order = rng.permutation(len(target))
    few, many = law.take(order[:FIRST_ROWS]), law.take(order[:MOST_ROWS])
    begun = [descend(few, _draw_start(few, rng), FIRST_ROUNDS) for _ in range(settings.starts)]
    begun.sort(key=lambda found: found[1])
    done = [descend(many, found[0], MOST_ROUNDS) for found in begun[: settings.members]]
    lowest = min(cost for _, cost in done)
    return _to_structure([theta for theta, cost in done if cost <= POOR * lowest + 1e-9], law)


def _to_structure(thetas: list[F64], law: _Bends) -> Structure:
    terms, features = law.shape()
    split = [_split(theta, law) for theta in thetas]
    power = np.array([_to_power(raw)[0] for _, _, raw, _ in split]).reshape(len(split), terms, features)
    power[power < USELESS_POWER] = 0.0
    return Structure(
        law.resources,
        np.array([level for level, _, _, _ in split]),
        np.array([hinge for _, hinge, _, _ in split]).reshape(len(split), terms, features),
        power,
        np.array([1.0 + np.exp(sharp) for _, _, _, sharp in split]),
    )


def _draw_start(law: _Bends, rng: np.random.Generator) -> F64:
    """A term begins as linear in one or two kinds of work, beyond a hinge within the lower half of them."""
    terms, features = law.shape()
    low, high = find_range(law.log_work)
    hinge = rng.uniform(low, (low + high) / 2 + 1e-9, (terms, features))
    raw = rng.normal(0.0, 0.3, (terms, features))
    for term in range(terms):
        picked = rng.permutation(features)[: rng.choice([1, 1, 2, 2, 2])]
        raw[term, picked] = rng.normal(NO_POWER - np.log(MAX_POWER - 1.0), 0.3, len(picked))
    bends = soften(CORNER * (law.log_work - hinge[:, :, None])) / CORNER
    logs = np.einsum("tfn,tf->tn", bends, _to_power(raw)[0])
    # Each term begins as about all of the time of the steps that it explains best.
    share = rng.uniform(0.02, 0.3)
    level = np.quantile(law.target - logs, share, axis=1) - np.log(terms / law.resources)
    return np.concatenate([level, hinge.ravel(), raw.ravel(), [np.log(5.0)]])


def find_range(log_work: F64) -> tuple[F64, F64]:
    """Return each feature's smallest and largest log, rows without that work left aside."""
    is_work = log_work > np.log(SMALLEST_WORK) + 1.0
    low = np.where(is_work, log_work, np.inf).min(axis=1, initial=np.inf)
    high = np.where(is_work, log_work, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 1.0)


def _split(theta: F64, law: _Bends) -> tuple[F64, F64, F64, float]:
    terms, features = law.shape()
    wide = terms * features
    hinge = theta[terms : terms + wide].reshape(terms, features)
    raw = theta[terms + wide : terms + 2 * wide].reshape(terms, features)
    return theta[:terms], hinge, raw, float(theta[-1])


def _to_power(raw: F64) -> tuple[F64, F64]:
    """Return powers within 0..MAX_POWER and their slopes."""
    power = MAX_POWER / (1.0 + np.exp(NO_POWER - raw))
    return power, power * (1.0 - power / MAX_POWER)
