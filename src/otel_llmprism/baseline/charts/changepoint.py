# A series comes in, the places where its level steps go out. Exact for the sum of squares with a penalty a
# change (optimal partitioning with pruning, Killick et al. 2012). Knows nothing of steps or time.
import numpy as np

from otel_llmprism.model.steps import F64

MAX_POINTS = 4_096
SPIKE = 4.0  # robust standard deviations from the neighbours' median: a single value, not a level


def find_changepoints(values: F64, *, penalty: float = 3.0, min_length: int = 2) -> list[int]:
    """Return the first row of every new level; `penalty` counts in 2 x sigma^2 x ln(rows)."""
    series = soften_spikes(np.asarray(values, dtype=np.float64)[-MAX_POINTS:])
    rows = len(series)
    if rows < 2 * min_length:
        return []
    series = (series - float(np.median(series))) / estimate_noise(series)
    total = np.concatenate([[0.0], np.cumsum(series)])
    squares = np.concatenate([[0.0], np.cumsum(series**2)])
    price = 2.0 * penalty * float(np.log(rows))
    best = np.zeros(rows + 1)
    best[0] = -price
    last = np.zeros(rows + 1, dtype=np.int64)
    alive = np.array([0])
    for end in range(min_length, rows + 1):
        length = end - alive
        cost = squares[end] - squares[alive] - (total[end] - total[alive]) ** 2 / length
        reached = best[alive] + cost + price
        place = int(np.argmin(reached))
        best[end], last[end] = reached[place], alive[place]
        alive = alive[reached - price <= best[end]]
        if end - min_length + 1 >= min_length:
            alive = np.append(alive, end - min_length + 1)
    return read_partition(last, rows)


def read_partition(last: np.ndarray[tuple[int], np.dtype[np.int64]], rows: int) -> list[int]:
    found = []
    end = int(last[rows])
    while end > 0:
        found.append(end)
        end = int(last[end])
    return found[::-1]


def locate_shift(values: F64) -> int:
    """Return the row where the level most likely stepped up, the earliest when all are alike."""
    rows = len(values)
    if rows < 2:
        return 0
    after = np.arange(rows, 0, -1)
    tail = np.cumsum(values[::-1])[::-1] / after
    before = np.concatenate([[0.0], np.cumsum(values)[:-1] / np.arange(1, rows)])
    gain = after * (rows - after) / rows * np.maximum(tail - before, 0.0) ** 2
    return int(np.argmax(gain[1:]) + 1) if gain[1:].max() > 0 else 0


def estimate_noise(series: F64) -> float:
    """Return the standard deviation between neighbours, which steps of the level hardly touch."""
    step = np.abs(np.diff(series))
    noise = 1.4826 * float(np.median(step)) / 2**0.5
    return max(noise, 1e-9 * (1.0 + float(np.abs(series).max())), 0.25 * float(step.mean()) / 2**0.5)


def soften_spikes(series: F64) -> F64:
    """Return the series with single outliers drawn to their neighbours' median."""
    if len(series) < 5:
        return series
    padded = np.pad(series, 2, mode="edge")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    reach = SPIKE * estimate_noise(series)
    softened: F64 = np.clip(series, middle - reach, middle + reach)
    return softened
