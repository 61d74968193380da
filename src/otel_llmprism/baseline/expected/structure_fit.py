# Fits a Structure to log times: damped least squares on Huber's loss from several random starts. numpy alone,
# so that it works where LightGBM is not installed. Randomness comes in as a generator.
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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

HUBER = 0.1  # log error from which a row pulls with constant force
RIDGE = 1e-6
FIRST_ROWS = 500  # a start is judged on so many rows before the best go on
MOST_ROWS = 2000  # more rows make a structure of some hundred parameters slower, not better
FIRST_ROUNDS, MOST_ROUNDS = 15, 30
MAX_SHARPNESS = 16.0
BOUND = 60.0  # of any parameter: e^60 ns is longer than any step
USELESS_POWER = 0.02


@dataclass(frozen=True, slots=True)
class _Problem:
    log_work: F64
    target: F64
    resources: int
    terms: int  # in all

    def shape(self) -> tuple[int, int]:
        return self.terms, self.log_work.shape[1]

    def take(self, rows: npt.NDArray[np.intp]) -> "_Problem":
        return _Problem(self.log_work[rows], self.target[rows], self.resources, self.terms)


def fit_structure(work: F64, target: F64, settings: FitSettings, rng: np.random.Generator) -> Structure:
    """Return the average of the best structures found; the same for the same generator."""
    log_work = np.log(np.maximum(work, SMALLEST_WORK))
    problem = _Problem(log_work, target, settings.resources, settings.resources * settings.terms)
    order = rng.permutation(len(target))
    few, many = problem.take(order[:FIRST_ROWS]), problem.take(order[:MOST_ROWS])
    begun = [_descend(few, _draw_start(few, rng), FIRST_ROUNDS) for _ in range(settings.starts)]
    begun.sort(key=lambda found: found[1])
    done = [_descend(many, found[0], MOST_ROUNDS) for found in begun[: settings.members]]
    done.sort(key=lambda found: found[1])
    # A member that stayed in a poor valley would spoil the average.
    good = [theta for theta, cost in done if cost <= 1.5 * done[0][1] + 1e-9]
    return _to_structure(good, problem)


def _to_structure(thetas: list[F64], problem: _Problem) -> Structure:
    terms, features = problem.shape()
    split = [_split(theta, terms, features) for theta in thetas]
    power = np.array([_to_power(raw)[0] for _, _, raw, _ in split]).reshape(-1, terms, features)
    power[power < USELESS_POWER] = 0.0
    return Structure(
        problem.resources,
        np.array([level for level, _, _, _ in split]),
        np.array([hinge for _, hinge, _, _ in split]).reshape(-1, terms, features),
        power,
        np.array([1.0 + np.exp(sharp) for _, _, _, sharp in split]),
    )


def _draw_start(problem: _Problem, rng: np.random.Generator) -> F64:
    terms, features = problem.shape()
    seen = np.where(problem.log_work > np.log(SMALLEST_WORK) + 1, problem.log_work, np.nan)
    low = [np.nanmin(column) if not np.isnan(column).all() else 0.0 for column in seen.T]
    high = [np.nanmax(column) if not np.isnan(column).all() else 1.0 for column in seen.T]
    return np.concatenate(
        [
            np.median(problem.target) - 2.0 + rng.normal(0, 1, terms),
            rng.uniform(low, high, (terms, features)).ravel() if features else np.zeros(0),
            rng.normal(-1, 1.5, terms * features),
            [np.log(3.0)],
        ]
    )


def _descend(problem: _Problem, theta: F64, rounds: int) -> tuple[F64, float]:
    """Levenberg-Marquardt; returns where it stopped and the cost there."""
    damping, cost = 1e-2, _measure(problem, theta)
    for _ in range(rounds):
        predicted, slope = _predict_with_slope(problem, theta)
        error = predicted - problem.target
        weight = np.minimum(1.0, HUBER / np.maximum(np.abs(error), 1e-12)) / len(error)
        curve = (slope * weight[:, None]).T @ slope + RIDGE * np.eye(len(theta))
        pull = (slope * weight[:, None]).T @ error + RIDGE * theta
        found = None
        for _ in range(8):
            step = np.linalg.solve(curve + damping * np.diag(np.diag(curve) + 1e-6), -pull)
            tried = np.clip(theta + np.clip(step, -1.5, 1.5), -BOUND, BOUND)
            tried[-1] = min(tried[-1], np.log(MAX_SHARPNESS - 1.0))
            new_cost = _measure(problem, tried)
            if new_cost < cost:
                found = tried
                damping = max(damping / 3, 1e-6)
                break
            damping *= 4
        if found is None:
            break
        gain, theta, cost = cost - new_cost, found, new_cost
        if gain < 1e-4 * cost:
            break
    return theta, cost


def _measure(problem: _Problem, theta: F64) -> float:
    miss = np.abs(_predict(problem, theta)[0] - problem.target)
    huber = np.where(miss < HUBER, miss * miss / 2, HUBER * (miss - HUBER / 2))
    return float(huber.mean() + RIDGE / 2 * (theta @ theta))


def _split(theta: F64, terms: int, features: int) -> tuple[F64, F64, F64, float]:
    wide = terms * features
    hinge = theta[terms : terms + wide].reshape(terms, features)
    raw = theta[terms + wide : terms + 2 * wide].reshape(terms, features)
    return theta[:terms], hinge, raw, float(theta[-1])


def _to_power(raw: F64) -> tuple[F64, F64]:
    power = MAX_POWER / (1.0 + np.exp(-raw))
    return power, power * (1.0 - power / MAX_POWER)


def _predict(problem: _Problem, theta: F64) -> tuple[F64, F64, F64, F64]:
    """Return ln T, and rows x terms of logs, rows x resources of logs, and the bends for the slopes."""
    terms, features = problem.shape()
    level, hinge, raw, sharp = _split(theta, terms, features)
    power, _ = _to_power(raw)
    bends = soften(CORNER * (problem.log_work[:, None, :] - hinge[None])) / CORNER
    logs = level + np.einsum("ntf,tf->nt", bends, power)
    busy = add_logs(logs.reshape(len(logs), problem.resources, -1))
    p = 1.0 + np.exp(sharp)
    joined = add_logs(p * busy) / p
    return joined, logs, busy, bends


def _predict_with_slope(problem: _Problem, theta: F64) -> tuple[F64, F64]:
    terms, features = problem.shape()
    _, _, raw, sharp = _split(theta, terms, features)
    power, power_slope = _to_power(raw)
    joined, logs, busy, bends = _predict(problem, theta)
    p = 1.0 + np.exp(sharp)
    of_resource = np.exp(p * (busy - joined[:, None]))  # its share of the joined time
    of_term = np.exp(logs.reshape(len(logs), problem.resources, -1) - busy[:, :, None])
    share = (of_resource[:, :, None] * of_term).reshape(len(logs), terms)
    far = 1.0 - np.exp(-CORNER * bends)  # how far beyond its hinge a row is, 0..1
    by_hinge = -share[:, :, None] * power * far
    by_power = share[:, :, None] * bends * power_slope
    by_sharp = ((of_resource * busy).sum(axis=1) - joined) / p * (p - 1.0)
    flat = [share, by_hinge.reshape(len(logs), -1), by_power.reshape(len(logs), -1), by_sharp[:, None]]
    return joined, np.concatenate(flat, axis=1)
