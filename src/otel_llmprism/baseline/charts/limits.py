# Blocks of normal running come in, the limits of every detector go out: a moving-block bootstrap carries the
# blocks' own autocorrelation into long runs, an exponential tail carries it out to the stated run length.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.baseline.charts.config import ChartConfig
from otel_llmprism.baseline.charts.detectors import trace_cusum, trace_ewma, trace_window
from otel_llmprism.model.steps import F64

PATHS, PATH_BLOCKS, SEGMENT = 64, 250, 50
TAIL = 0.2  # share of segment maxima that the tail is fitted to
SHARES = 8  # detectors and channels that share a chart's false alarms: 2 single, 2 x 3 sums
SINGLE_BLOCKS = 2.2  # at the clip, that a sum needs at least: no single block alarms there
SINGLE_GUARD = 1.5  # single blocks have heavier tails than their sums, and no bootstrap sees beyond its data
# What little was seen of a tail must not hide a slowdown that anybody would call one.
CERTAIN_SHIFT, LEAST_SINGLE = float(np.log(1.8)), 4.0  # log time; standard deviations
EFFICIENCY = 1.2  # variance of the middle half's mean against that of the mean


@dataclass(frozen=True, slots=True)
class History:
    """Blocks of normal running, oldest first; looks are the highest of each block."""

    centre: F64
    burden: F64
    count: F64
    within: F64
    spread: F64
    load: F64
    look: F64  # NaN: no look had enough steps
    look_count: F64


@dataclass(frozen=True, slots=True)
class Scale:
    """Centre and variance of a channel's blocks: variance = base + per_step / count."""

    centre: float
    base: float
    per_step: float

    def find_sigma(self, count: float) -> float:
        return float((self.base + self.per_step / max(count, 1.0)) ** 0.5)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one chart is held to; sums in the order of detectors.SUMS, channels centre then burden."""

    scales: tuple[Scale, Scale]
    slack: float
    point: float
    look: float
    sums: tuple[tuple[float, float, float], tuple[float, float, float]]
    top_spread: float  # the highest the model's doubt was in normal running
    low_load: float
    high_load: float
    blocks: int


def fit_limits(history: History, config: ChartConfig, rng: np.random.Generator) -> Limits:
    """Return limits for the configured run length; O(PATHS x PATH_BLOCKS)."""
    scales = (fit_scale(history.centre, history, config), fit_scale(history.burden, history, config))
    z = [
        standardise(values, history.count, scale)
        for values, scale in zip((history.centre, history.burden), scales, strict=True)
    ]
    looks = standardise(history.look, history.look_count, scales[0])
    looks = np.where(np.isnan(looks), 0.0, looks)
    rows = resample_rows(len(z[0]), config.resample_blocks, rng)
    sigma = scales[0].find_sigma(float(np.median(history.count)))
    slack = min(2.0, max(config.cusum_slack, 0.5 * config.min_shift / sigma))
    run_length = config.run_length_blocks * SHARES
    caution = 1.0 + 3.0 / len(z[0]) ** 0.5  # few blocks tell little of their tail
    sums = [
        fit_sums(np.clip(channel, -config.clip_z, config.clip_z)[rows], slack, caution, config)
        for channel in z
    ]
    single = caution * SINGLE_GUARD
    most = max(LEAST_SINGLE, CERTAIN_SHIFT / sigma)
    low, high = np.quantile(history.load, (0.005, 0.995))
    return Limits(
        scales,
        slack,
        min(most, single * extrapolate_tail(z[0][rows], run_length)),
        min(most, single * extrapolate_tail(looks[rows], run_length)),
        (sums[0], sums[1]),
        float(np.quantile(history.spread, 0.9)),
        float(low),
        float(high),
        len(z[0]),
    )


def fit_sums(path: F64, slack: float, caution: float, config: ChartConfig) -> tuple[float, float, float]:
    """Return the limits of window, EWMA and CUSUM; never so low that a block or two reach them."""
    run_length = config.run_length_blocks * SHARES
    window = caution * extrapolate_tail(trace_window(path, config), run_length)
    ewma = caution * extrapolate_tail(trace_ewma(path, config), run_length)
    cusum = caution * extrapolate_tail(trace_cusum(path, slack), run_length)
    weight = config.ewma_weight
    clipped = SINGLE_BLOCKS * config.clip_z
    reach = ((2 - weight) / weight) ** 0.5 * weight
    return (
        max(window, clipped / config.window_blocks**0.5),
        max(ewma, clipped * reach),
        max(cusum, clipped - SINGLE_BLOCKS * slack),
    )


def fit_scale(level: F64, history: History, config: ChartConfig) -> Scale:
    """Split the variance of blocks into what more steps average out and what they do not."""
    centre = float(np.median(level))
    total = (1.4826 * float(np.median(np.abs(level - centre)))) ** 2
    told = history.within[~np.isnan(history.within)]
    per_step = EFFICIENCY * float(np.median(told)) ** 2 if len(told) else 0.0
    base = total - per_step * float(np.median(1.0 / history.count))
    return Scale(centre, max(base, config.min_sigma**2), per_step)


def standardise(level: F64, count: F64, scale: Scale) -> F64:
    z: F64 = (level - scale.centre) / np.sqrt(scale.base + scale.per_step / np.maximum(count, 1.0))
    return z


def resample_rows(
    blocks: int, length: int, rng: np.random.Generator
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return rows for PATHS paths of PATH_BLOCKS, in runs of neighbours (moving blocks, wrapped around)."""
    length = max(1, min(length, blocks // 3))
    pieces = -(-PATH_BLOCKS // length)
    starts = rng.integers(0, blocks, (PATHS, pieces))
    rows = (starts[:, :, None] + np.arange(length)) % blocks
    return rows.reshape(PATHS, -1)[:, :PATH_BLOCKS]


def extrapolate_tail(trace: F64, run_length: float) -> float:
    """Return the value that segment maxima exceed once in `run_length` blocks, by an exponential tail."""
    maxima = np.sort(trace.reshape(-1, SEGMENT).max(axis=1))
    first = int(len(maxima) * (1 - TAIL))
    start = float(maxima[first])
    mean_excess = float((maxima[first:] - start).mean())
    return max(3.0, start + mean_excess * float(np.log(TAIL * run_length / SEGMENT)))
