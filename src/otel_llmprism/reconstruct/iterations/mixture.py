# Points in a few dimensions -> two sorts, if there are two: a cut of the first dimension that leaves two
# tight heaps far apart. One sort is the usual answer.
import numpy as np

from otel_llmprism.model.steps import F64
from otel_llmprism.reconstruct.iterations.activity import Mask

_MIN_EACH = 2
_MIN_RATIO = 1.5  # between the middles, as a factor
_MIN_DISTANCE = 4.0  # between the middles, in scatters of the heaps
_FLOOR = 0.02  # of a scatter: two values that only repeat themselves are no evidence of precision


def split_in_two(points: F64) -> Mask | None:
    """Return which points lie in the upper heap, None when all are of one sort; columns are logarithms."""
    if len(points) < 2 * _MIN_EACH:
        return None
    for column in range(points.shape[1]):
        is_upper = _split_column(points[:, column])
        if is_upper is not None:
            return is_upper
    return None


def _split_column(values: F64) -> Mask | None:
    ordered = np.sort(values)
    count = len(ordered)
    # The cut with the least scatter inside both heaps, from running sums.
    sums, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    left = np.arange(1, count)
    right = count - left
    inner = squares[:-1] - sums[:-1] ** 2 / left
    inner += (squares[-1] - squares[:-1]) - (sums[-1] - sums[:-1]) ** 2 / right
    inner[(left < _MIN_EACH) | (right < _MIN_EACH)] = np.inf
    at = int(np.argmin(inner))
    low, high = ordered[: at + 1], ordered[at + 1 :]
    distance = float(np.median(high) - np.median(low))
    scatter = max(_measure_scatter(low), _measure_scatter(high), _FLOOR)
    if distance < np.log(_MIN_RATIO) or distance < _MIN_DISTANCE * scatter:
        return None
    is_upper: Mask = values > (low[-1] + high[0]) / 2
    return is_upper


def _measure_scatter(heap: F64) -> float:
    return 1.4826 * float(np.median(np.abs(heap - np.median(heap))))
