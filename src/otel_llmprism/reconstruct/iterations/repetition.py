# Pauses and durations in order -> the cut into parts that repeats best. Cuts come from the pauses (where
# their sizes leave a hole between short and long) and from the lag at which the stream resembles itself.
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import F64
from otel_llmprism.reconstruct.iterations.correlation import correlate

MIN_PARTS = 3
MAX_LOOKED_AT = 1 << 17  # activities; the first ones tell the period, all are cut
_JUMPS, _LAGS = 8, 6
_CLEAR_CONTRAST = 3.0
_SAME_COUNT = 0.1
_WINDOW = 0.15  # of a period: how far a boundary may lie from where the period puts it
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Repetition:
    first_rows: Rows  # the first activity of each part
    activities: float  # in the usual part
    contrast: float  # usual pause between parts / what nearly no pause within exceeds
    score: float
    inner: float  # how alike the usual part is to itself, a quarter of it or less on


def find_repetition(pauses: F64, log_duration: F64) -> Repetition | None:
    """Return the best cut, None when there is none into three parts or more."""
    logs = np.log(pauses)
    cuts = [*_cut_by_size(logs), *_cut_by_period(logs, log_duration)]
    scored = [_score(cut, logs, log_duration) for cut in cuts if len(cut) >= MIN_PARTS - 1]
    return max(scored, key=lambda found: found.score, default=None)


def _cut_by_size(logs: F64) -> list[Rows]:
    """Return cuts at all pauses above one of the widest holes in the sizes of pauses."""
    ordered = np.sort(logs)[::-1]
    most = len(ordered) // 2
    jumps = ordered[:most] - ordered[1 : most + 1]
    widest = np.argsort(-jumps)[:_JUMPS]
    return [np.flatnonzero(logs >= ordered[at]) + 1 for at in widest.tolist() if jumps[at] > 0]


def _cut_by_period(logs: F64, log_duration: F64) -> list[Rows]:
    """Return cuts at the longest pause near every multiple of the likeliest lags."""
    looked = slice(0, MAX_LOOKED_AT)
    most = min(len(logs[looked]), MAX_LOOKED_AT) // MIN_PARTS
    if most < 2:
        return []
    alike = correlate(logs[looked], most) + correlate(log_duration[1:][looked], most)
    is_peak = np.concatenate(([False], (alike[1:-1] > alike[:-2]) & (alike[1:-1] >= alike[2:]), [False]))
    peaks = np.flatnonzero(is_peak)
    likeliest = peaks[np.argsort(-alike[peaks], kind="stable")[:_LAGS]] + 1
    return [_walk(logs, int(lag)) for lag in likeliest.tolist()]


def _walk(logs: F64, lag: int) -> Rows:
    whole = len(logs) // lag * lag
    phase = int(np.argmax(logs[:whole].reshape(-1, lag).mean(axis=0)))
    reach = max(1, int(lag * _WINDOW))
    cuts = [phase]
    while cuts[-1] + lag < len(logs):
        near = cuts[-1] + lag
        low, high = max(cuts[-1] + 1, near - reach), min(len(logs), near + reach + 1)
        cuts.append(low + int(np.argmax(logs[low:high])))
    return np.array(cuts, np.intp) + 1


def _score(cut: Rows, logs: F64, log_duration: F64) -> Repetition:
    is_between = np.zeros(len(logs), bool)
    is_between[cut - 1] = True
    within = float(np.quantile(logs[~is_between], 0.95)) if not is_between.all() else 0.0
    contrast = float(np.exp(np.median(logs[is_between]) - within))
    first = np.concatenate(([0], cut))
    counts = np.diff(np.append(first, len(log_duration)))
    # The first and last part may be cut off by the recording; they are judged by nobody.
    inner_parts = slice(1, -1) if len(counts) >= MIN_PARTS + 2 else slice(0, None)
    regularity = _measure_regularity(counts[inner_parts])
    likeness = _measure_likeness(first[inner_parts], counts[inner_parts], log_duration)
    clear = min(1.0, max(0.0, np.log(contrast) / np.log(_CLEAR_CONTRAST)))
    several = len(counts) / (len(counts) + 0.5) if float(np.median(counts)) > 1 else 0.0
    score = regularity * (0.3 + 0.7 * likeness) * clear * several
    inner = _measure_inner(first[inner_parts], counts[inner_parts], log_duration)
    return Repetition(first, float(np.median(counts)), contrast, float(score), inner)


def _measure_inner(first: Rows, counts: Rows, log_duration: F64) -> float:
    usual = int(np.argsort(counts, kind="stable")[len(counts) // 2])
    part = log_duration[first[usual] : first[usual] + counts[usual]]
    most = len(part) // 4
    if most < 3 or float(part.std()) < 0.05:
        return 0.0
    return float(correlate(part, most)[2:].max(initial=0.0))


def _measure_regularity(counts: Rows) -> float:
    """Return the share of parts whose count is near one of the two commonest."""
    usual = float(np.median(counts))
    is_near = np.abs(counts - usual) <= np.maximum(1, _SAME_COUNT * usual)
    rest = counts[~is_near]
    if len(rest) >= 2:
        second = float(np.median(rest))
        # Two or three times the usual is no second sort of iteration but a boundary that was missed.
        times = second / max(usual, 1.0)
        is_missed = times > 1.5 and abs(times - round(times)) <= _SAME_COUNT
        is_near |= ~np.bool_(is_missed) & (np.abs(counts - second) <= np.maximum(1, _SAME_COUNT * second))
    return float(is_near.mean())


def _measure_likeness(first: Rows, counts: Rows, log_duration: F64) -> float:
    """Return how alike parts of one count are, activity by activity, against how alike any two are.

    A part that is slower as a whole is alike: a prefill repeats the pattern of a decode.
    """
    looked_at = np.argsort(counts, kind="stable")[:400].tolist()
    parts = {at: log_duration[first[at] : first[at] + counts[at]] for at in looked_at}
    patterns = {at: part - part.mean() for at, part in parts.items()}
    apart: list[float] = []
    for one, other in pairwise(looked_at):
        count = int(min(counts[one], counts[other]))
        apart.append(float(np.mean(np.abs(patterns[one][:count] - patterns[other][:count]))))
    ordered = np.sort(np.concatenate(list(patterns.values())))
    # Mean distance of two activities drawn at random, from the order statistics.
    size = len(ordered)
    anybody = 2 * float(np.sum((2 * np.arange(1, size + 1) - size - 1) * ordered)) / max(1, size * (size - 1))
    if anybody < 0.05:
        return 1.0  # all activities are alike: their durations say nothing for or against
    return max(0.0, 1 - float(np.mean(apart)) / anybody)
