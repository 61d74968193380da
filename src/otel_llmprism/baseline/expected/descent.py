# Damped least squares on Huber's loss of log times, for any law that tells its slopes. numpy alone, so that a
# structure can be fitted where nothing else is installed. Knows no work.
from typing import Protocol

import numpy as np

from otel_llmprism.model.steps import F64

HUBER = 0.1  # log error from which a row pulls with constant force
RIDGE = 1e-6
LONGEST_STEP = 1.5  # of a parameter in one round
TRIES = 8
SMALLEST_GAIN = 1e-4  # of the cost, in one round


class Law(Protocol):
    """Log times from parameters, for rows that the law holds; slopes are parameters x rows."""

    @property
    def target(self) -> F64: ...

    def predict(self, theta: F64) -> F64: ...

    def predict_with_slope(self, theta: F64) -> tuple[F64, F64]: ...

    def limit(self, theta: F64) -> F64: ...


def descend(law: Law, theta: F64, rounds: int) -> tuple[F64, float]:
    """Return the parameters where it stopped (Levenberg and Marquardt) and the cost there."""
    damping, cost = 1e-2, _measure(law, theta)
    for _ in range(rounds):
        predicted, slope = law.predict_with_slope(theta)
        error = predicted - law.target
        weight = np.minimum(1.0, HUBER / np.maximum(np.abs(error), 1e-12)) / len(error)
        pulled = slope * weight
        curve = pulled @ slope.T + RIDGE * np.eye(len(theta))
        pull = pulled @ error + RIDGE * theta
        for _ in range(TRIES):
            step = np.linalg.solve(curve + damping * np.diag(np.diag(curve) + 1e-6), -pull)
            tried = law.limit(theta + np.clip(step, -LONGEST_STEP, LONGEST_STEP))
            new_cost = _measure(law, tried)
            if new_cost < cost:
                break
            damping *= 4
        else:
            break
        damping = max(damping / 3, 1e-6)
        gain, theta, cost = cost - new_cost, tried, new_cost
        if gain < SMALLEST_GAIN * cost:
            break
    return theta, cost


def _measure(law: Law, theta: F64) -> float:
    miss = np.abs(law.predict(theta) - law.target)
    huber = np.where(miss < HUBER, miss * miss / 2, HUBER * (miss - HUBER / 2))
    return float(huber.mean() + RIDGE / 2 * (theta @ theta))
