# What one alarm remembers, when it began and when it is over, and whether it is one at all or new work. Pure
# decisions over the newest blocks; the chart owns them.
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otel_llmprism.baseline.charts.blocks import Block
from otel_llmprism.baseline.charts.changepoint import locate_shift
from otel_llmprism.baseline.charts.judge import CENTRE, Verdict
from otel_llmprism.baseline.charts.limits import Limits
from otel_llmprism.model.charts import Detector

BACK = 0.4  # of the shift: what is left of it when it is over
NEW_SPREAD = 1.25  # times the highest charted doubt of the model: beyond what it was trained on
NEW_SHARE = 0.2  # of the steps of a block have work never seen
TOGETHER = 3  # blocks: work and residual that change so close together changed together


@dataclass(frozen=True, slots=True)
class RecentBlock:
    begin_ns: int
    spread: float
    unseen_share: float


@dataclass(frozen=True, slots=True)
class RecentLook:
    begin_ns: int
    end_ns: int
    centre: float
    low: float


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest blocks of a chart with their values, and the newest looks; oldest first."""

    values: list[float]
    blocks: list[RecentBlock]
    looks: list[RecentLook]


@dataclass(slots=True)
class Alarm:
    """One alarm; `shift` is the mean log ratio above normal since its onset."""

    is_on: bool = False
    onset_ns: int = 0
    channel: int = CENTRE
    shift: float = 0.0
    blocks: int = 0

    def start(self, values: list[float], begins_ns: list[int], verdict: Verdict) -> None:
        """Take the shift so far; `values` and `begins_ns` end with the same block."""
        since = [
            value
            for value, begin in zip(values[::-1], begins_ns[::-1], strict=False)
            if begin >= self.onset_ns
        ]
        if since:
            self.shift, self.blocks = sum(since) / len(since), len(since)
        else:
            self.shift, self.blocks = verdict.value, 0

    def follow(self, values: list[float], min_shift: float) -> bool:
        """Take one more block in; return whether the alarm is over."""
        newest = values[-2:]
        left = sum(newest) / len(newest)
        if left < max(BACK * self.shift, 0.6 * min_shift) and newest[-1] < max(self.shift, min_shift):
            return True
        self.blocks += 1
        self.shift += (values[-1] - self.shift) / self.blocks
        return False


def estimate_onset(newest: Newest, block: Block, verdict: Verdict, normal: float) -> int:
    """Return when the shift began: the best step among the newest blocks, then sharpened by the looks."""
    begins = [entry.begin_ns for entry in newest.blocks]
    onset_ns = block.begin_ns
    if verdict.detector is not Detector.POINT and newest.values:
        values = newest.values[-len(begins) :]
        onset_ns = begins[len(begins) - len(values) + locate_shift(np.array(values))]
    if verdict.channel != CENTRE:
        return onset_ns
    slow_ns = None
    for look in reversed(newest.looks):
        if look.centre - normal < 0.5 * verdict.value or look.end_ns < onset_ns:
            break
        slow_ns = (look.begin_ns + look.end_ns) // 2
    return slow_ns if slow_ns is not None else onset_ns


def is_new_work(recent: Sequence[RecentBlock], block: Block, limits: Limits, blocks: int) -> bool:
    """Return whether the work left what the model knows just when the residual rose.

    The same rise at work that was known all along, or new long before, is a slowdown.
    """
    top = NEW_SPREAD * limits.top_spread
    if not recent:
        return block.spread > top or block.unseen > NEW_SHARE * (block.unseen + block.count)
    is_beyond = [entry.spread > top or entry.unseen_share > NEW_SHARE for entry in recent]
    if not is_beyond[-1]:
        return False
    first = len(is_beyond)
    while first > 0 and is_beyond[first - 1]:
        first -= 1
    rose = max(0, len(is_beyond) - blocks)
    return abs(first - rose) <= TOGETHER and first > 0
