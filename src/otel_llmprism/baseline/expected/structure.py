# Expected time from work alone: the slowest of a few resources, each busy for the sum of what queues for
# it, each of those flat for little work and a power of more. Never falls when work grows. Knows no kinds.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.steps import F64

CORNER = 2.0  # how sharp the bend from flat to power is
MAX_POWER = 2.2  # prefill attention is quadratic; more would not extrapolate
SMALLEST_WORK = 1e-290  # stands for none, whose logarithm does not exist


@dataclass(frozen=True, slots=True)
class Structure:
    """Resource r is busy for B_r, the sum over its terms of e^level * product of bends.

    ln T is the mean over members of ln((sum over r of B_r^p)^(1/p)).
    A bend is (1 + (x / hinge)^CORNER)^(power / CORNER). First axis: members of the average.
    """

    resources: int
    level: F64  # members x terms; terms of one resource stand together
    log_hinge: F64  # members x terms x features
    power: F64  # members x terms x features, 0..MAX_POWER
    sharpness: F64  # members: the p above, at least 1

    def predict_log(self, work: F64) -> F64:
        """Return ln T of each row of work."""
        log_work = np.log(np.maximum(work, SMALLEST_WORK)).T
        total = np.zeros(len(work))
        for member in range(len(self.level)):
            terms = sum_bends(log_work, self.log_hinge[member], self.power[member])
            terms += self.level[member, :, None]
            busy = add_logs(terms.reshape(self.resources, -1, len(work)), 1)
            total += add_logs(self.sharpness[member] * busy, 0) / self.sharpness[member]
        mean: F64 = total / len(self.level)
        return mean


def sum_bends(log_work: F64, log_hinge: F64, power: F64) -> F64:
    """Return terms x rows, the log of each term's product of bends, from features x rows."""
    total = np.zeros((len(log_hinge), log_work.shape[1]))
    for feature, logs in enumerate(log_work):
        used = np.flatnonzero(power[:, feature])
        if len(used):
            beyond = CORNER * (logs - log_hinge[used, feature, None])
            total[used] += power[used, feature, None] / CORNER * soften(beyond)
    return total


def soften(x: F64) -> F64:
    """Return ln(1 + e^x): 0 far below 0, x far above; several times as fast as numpy's logaddexp."""
    soft: F64 = np.log1p(np.exp(np.minimum(x, 500.0)))
    return soft


def add_logs(logs: F64, axis: int) -> F64:
    """Return the log of the sum over an axis of e^logs; rows lie last, where numpy is fast."""
    highest = logs.max(axis=axis, keepdims=True)
    summed: F64 = highest.squeeze(axis) + np.log(np.exp(logs - highest).sum(axis=axis))
    return summed
