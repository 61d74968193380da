# One block and a chart's limits come in, one verdict goes out: the statistic that stands highest over its
# limit, and whether its shift matters. Keeps the sums' memory; knows nothing of alarms or regimes.
import math
from collections import deque
from dataclasses import dataclass

from otel_llmprism.baseline.charts.blocks import Block
from otel_llmprism.baseline.charts.config import ChartConfig
from otel_llmprism.baseline.charts.detectors import SUMS, SumDetectors
from otel_llmprism.baseline.charts.limits import Limits
from otel_llmprism.model.charts import Detector

DOUBT = 2.0  # standard deviations of the model's added doubt that a shift may owe to it
BIAS_PER_LOAD = 0.15  # log time the model may be off for each e-fold of load beyond what was charted
MAX_ALLOWANCE = 0.5
LOOK_SHIFT = 2.0  # times the least shift, before half a second is enough to alarm
MEMORY = 64  # blocks
MIN_POINT_STEPS = 4  # fewer in one block prove nothing, be they ever so long
CENTRE, BURDEN = 0, 1


@dataclass(frozen=True, slots=True)
class Verdict:
    score: float
    detector: Detector
    channel: int  # CENTRE or BURDEN
    value: float  # of that channel: log ratio above normal, after allowance
    level: float
    upper: float
    is_large: bool  # the shift is one that matters
    blocks: int  # that the leading statistic looks back on


class BlockJudge:
    """The detectors of one chart."""

    def __init__(self, config: ChartConfig) -> None:
        self._config = config
        self._sums = (SumDetectors(config), SumDetectors(config))
        asked = set(config.detectors) or set(Detector)
        sums = asked - {Detector.POINT} or set(SUMS)
        self._detectors = (asked, sums)  # by channel; a single block's burden is no evidence
        self._values: tuple[deque[float], deque[float]] = (deque(maxlen=MEMORY), deque(maxlen=MEMORY))

    def reset(self) -> None:
        for sums, values in zip(self._sums, self._values, strict=True):
            sums.reset()
            values.clear()

    def judge(self, block: Block, limits: Limits) -> Verdict:
        """Take a closed block in and say what stands highest."""
        allowance = find_allowance(block, limits)
        best: Verdict | None = None
        for channel, level in ((CENTRE, block.centre), (BURDEN, block.burden)):
            scale = limits.scales[channel]
            sigma = scale.find_sigma(block.count)
            value = shrink(level - scale.centre, allowance)
            z = value / sigma
            clipped = max(-self._config.clip_z, min(self._config.clip_z, z))
            self._values[channel].append(value)
            levels = self._sums[channel].add(clipped, limits.slack, limits.sums[channel][-1])
            upper = scale.centre + allowance + limits.point * sigma
            found = [(levels[i] / limits.sums[channel][i], SUMS[i]) for i in range(len(SUMS))]
            if channel == CENTRE and block.count >= MIN_POINT_STEPS:
                found.append((z / limits.point, Detector.POINT))
            asked = [pair for pair in found if pair[1] in self._detectors[channel]]
            score, detector = max(asked, default=(0.0, Detector.POINT))
            if best is None or self._is_ahead(score, best):
                blocks = self._count_blocks(detector, channel)
                is_large = self._find_mean(channel, blocks) >= self._config.min_shift
                best = Verdict(score, detector, channel, value, level, upper, is_large, blocks)
        assert best is not None
        return best

    def judge_look(self, look: Block, limits: Limits) -> Verdict:
        """Say what a look at the open block shows; leaves no trace."""
        scale = limits.scales[CENTRE]
        allowance = find_allowance(look, limits)
        sigma = scale.find_sigma(look.count)
        value = shrink(look.low - scale.centre, allowance)
        upper = scale.centre + allowance + limits.look * sigma
        is_large = value >= LOOK_SHIFT * self._config.min_shift
        return Verdict(
            value / sigma / limits.look, Detector.POINT, CENTRE, value, look.centre, upper, is_large, 1
        )

    def read_values(self, channel: int) -> list[float]:
        """Return the newest blocks' values, oldest first."""
        return list(self._values[channel])

    def dump(self) -> tuple[list[list[float]], list[list[float]]]:
        return [sums.dump() for sums in self._sums], [list(values) for values in self._values]

    def load(self, sums: list[list[float]], values: list[list[float]]) -> None:
        for place in (CENTRE, BURDEN):
            self._sums[place].load(sums[place])
            self._values[place].extend(values[place])

    @staticmethod
    def _is_ahead(score: float, best: Verdict) -> bool:
        # Of two that would both alarm the centre is told: it is the plainer of the two.
        return score > best.score and not (best.score > 1.0 and best.is_large)

    def _count_blocks(self, detector: Detector, channel: int) -> int:
        if detector is Detector.POINT:
            return 1
        if detector is Detector.CUSUM:
            return max(1, min(MEMORY, self._sums[channel].rising))
        return self._config.window_blocks

    def _find_mean(self, channel: int, blocks: int) -> float:
        newest = list(self._values[channel])[-blocks:]
        return sum(newest) / len(newest)


def find_allowance(block: Block, limits: Limits) -> float:
    """Return how much log time the model's doubt about this work, or a load never charted, may explain.

    Such a bias is shared by all steps of all blocks with that work, so it is taken off, not averaged out.
    """
    doubt = math.sqrt(max(0.0, block.spread**2 - limits.top_spread**2))
    beyond = max(0.0, block.load - limits.high_load, limits.low_load - block.load)
    return min(MAX_ALLOWANCE, DOUBT * doubt + BIAS_PER_LOAD * beyond)


def shrink(value: float, allowance: float) -> float:
    return math.copysign(max(0.0, abs(value) - allowance), value)
