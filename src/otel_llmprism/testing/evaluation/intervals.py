# Confidence intervals of what an evaluation counts: shares and rates of rare events. Pure.
import math

_Z95 = 1.959963984540054


def bound_share(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share after Wilson (1927); (0, 1) where nothing was counted."""
    if not of:
        return 0.0, 1.0
    share, z2 = hits / of, _Z95**2
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z95 / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    return (0.0 if not hits else middle - half), (1.0 if hits == of else middle + half)


def bound_rate(events: int, exposure: float, confidence: float = 0.95) -> float:
    """Return the exact one-sided upper bound of a Poisson rate: events within `exposure` units."""
    if exposure <= 0:
        return math.inf
    low, high = 0.0, 20.0 + 4.0 * events
    for _ in range(200):
        middle = (low + high) / 2
        if _sum_poisson(events, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high / exposure


def score_f1(hits: int, misses: int, false_flags: int) -> float:
    """Return F1; NaN where nothing was abnormal and nothing flagged."""
    total = 2 * hits + misses + false_flags
    return 2 * hits / total if total else math.nan


def _sum_poisson(events: int, mean: float) -> float:
    """Return the probability of at most `events`."""
    term = total = math.exp(-mean)
    for number in range(1, events + 1):
        term *= mean / number
        total += term
    return total
