# Streams of steps for the detectors' benchmark: autocorrelated, heavy-tailed log noise, a slowly wandering
# level, a load that moves, incidents at known places. Shares no code with what is measured.
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
MIXED_EVERY = 12  # one step in so many is of the second kind, and takes longer
DECODE, MIXED = 2, 3


@dataclass(frozen=True)
class Noise:
    """Log noise of single steps, as standard deviations and shares."""

    name: str
    sigma: float = 0.04
    correlation: float = 0.6  # of neighbours (AR(1))
    freedom: float = 4.0  # of Student's t
    outliers: float = 0.002  # share of steps with a delay of their own
    outlier_mean: float = 0.5  # log time, exponential
    wander: float = 0.008  # of a level that forgets itself in `wander_s`
    wander_s: float = 60.0


@dataclass(frozen=True)
class Incident:
    start_s: float
    end_s: float
    factor: float


@dataclass(frozen=True)
class Stream:
    step: npt.NDArray[np.uint64]
    time_ns: npt.NDArray[np.uint64]
    kind: npt.NDArray[np.uint8]
    cycle_ns: npt.NDArray[np.uint64]
    expected_ns: F64
    spread: F64
    is_slow: npt.NDArray[np.bool_]


NOISES = (
    Noise("calm", sigma=0.02, correlation=0.3, outliers=0.0005, wander=0.003),
    Noise("usual"),
    Noise("rough", sigma=0.08, correlation=0.75, freedom=3.0, outliers=0.005, wander=0.012),
)


def make_stream(
    noise: Noise, seconds: float, mean_cycle_s: float, incidents: Sequence[Incident], seed: int
) -> Stream:
    """Return steps that fill `seconds`; a slow step takes `factor` times what it would have taken."""
    rng = np.random.default_rng(seed)
    count = int(seconds / mean_cycle_s * 1.3) + 10
    kind = np.where(rng.random(count) < 1 / MIXED_EVERY, MIXED, DECODE).astype(np.uint8)
    load = np.exp(0.15 * draw_ar1(rng, count, 1 - mean_cycle_s / 20.0, rng.standard_normal(count)))
    expected = mean_cycle_s * load * np.where(kind == MIXED, 2.0, 1.0)
    student = rng.standard_t(noise.freedom, count) * np.sqrt((noise.freedom - 2) / noise.freedom)
    log_noise = noise.sigma * draw_ar1(rng, count, noise.correlation, student)
    log_noise += noise.wander * draw_ar1(
        rng, count, 1 - mean_cycle_s / noise.wander_s, rng.standard_normal(count)
    )
    hit = rng.random(count) < noise.outliers
    log_noise[hit] += rng.exponential(noise.outlier_mean, int(hit.sum()))
    cycle = expected * np.exp(log_noise)
    is_slow = np.zeros(count, dtype=bool)
    for incident in incidents:
        ends = np.cumsum(cycle)
        rows = slice(int(np.searchsorted(ends, incident.start_s)), None)
        slowed = np.cumsum(cycle[rows] * incident.factor) + ends[rows.start] - cycle[rows.start]
        last = rows.start + int(np.searchsorted(slowed, incident.end_s))
        cycle[rows.start : last] *= incident.factor
        is_slow[rows.start : last] = True
    ends = np.cumsum(cycle)
    stop = int(np.searchsorted(ends, seconds))
    spread = np.full(count, noise.sigma * 1.1)
    return Stream(
        np.arange(stop, dtype=np.uint64), (ends[:stop] * 1e9).astype(np.uint64), kind[:stop],
        (cycle[:stop] * 1e9).astype(np.uint64), expected[:stop] * 1e9, spread[:stop], is_slow[:stop],
    )  # fmt: skip


def draw_ar1(rng: np.random.Generator, count: int, correlation: float, shocks: F64) -> F64:
    """Return a series of standard deviation 1; in pieces, so that powers stay within doubles."""
    gain = (1 - correlation**2) ** 0.5
    piece = max(1, min(count, int(-200 / np.log10(max(correlation, 1e-6))) if correlation < 1 else count))
    series = np.empty(count)
    last = rng.standard_normal()
    for start in range(0, count, piece):
        part = shocks[start : start + piece]
        powers = correlation ** np.arange(1, len(part) + 1)
        series[start : start + piece] = powers * (last + gain * np.cumsum(part / powers))
        last = series[min(start + piece, count) - 1]
    return series
