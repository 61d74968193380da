# One chart: log ratios come in, readings go out. Learns its limits, raises and ends alarms, tells a change of
# work from a slowdown. Knows one key; what it learns from and what it is held to live in their own modules.
import zlib
from collections import Counter, deque
from dataclasses import replace

import numpy as np

from otel_llmprism.baseline.charts.alarm import (
    Alarm,
    Newest,
    RecentBlock,
    RecentLook,
    estimate_onset,
    is_new_work,
)
from otel_llmprism.baseline.charts.blocks import I64, Block, BlockBuilder
from otel_llmprism.baseline.charts.config import ChartConfig
from otel_llmprism.baseline.charts.history import BlockHistory
from otel_llmprism.baseline.charts.judge import MEMORY, BlockJudge, Verdict
from otel_llmprism.baseline.charts.limits import Limits, fit_limits
from otel_llmprism.baseline.charts.step_flags import StepFlagger, fit_step_limits
from otel_llmprism.model.charts import ChartKey, ChartReading, Detector
from otel_llmprism.model.steps import F64

NAN = float("nan")
NO_LOOK = (NAN, 1.0)


class Chart:
    """State of one chart; memory bounded by its configuration."""

    def __init__(self, key: ChartKey, config: ChartConfig, seed: int, counts: Counter[str]) -> None:
        self.key = key
        self.config = config
        self.seed = seed
        self.counts = counts
        self.flagger = StepFlagger(config)
        self.judge = BlockJudge(config)
        self.history = BlockHistory(config)
        self.limits: Limits | None = None
        self.alarm = Alarm()
        self.regime = 0
        self.grace = 0
        self._builder = BlockBuilder(config.block_ns, config.looks_per_block, config.look_min_steps, counts)
        self._recent: deque[RecentBlock] = deque(maxlen=MEMORY)
        self._looks: deque[RecentLook] = deque(maxlen=MEMORY)
        self._best_look = NO_LOOK
        self._owes_step_limits = False

    def add(self, time_ns: I64, rows: F64) -> list[ChartReading]:
        return self._take(list(self._builder.add(time_ns, rows)))

    def advance(self, time_ns: int) -> list[ChartReading]:
        return self._take(list(self._builder.advance(time_ns)))

    def mark_regime(self) -> None:
        """Forget the limits; nothing alarms until they are learned anew."""
        self.regime += 1
        self.limits = None
        self.flagger.reset()
        self.judge.reset()
        self.history = BlockHistory(self.config)
        self.alarm = Alarm()
        self.grace = self.config.grace_blocks
        self._owes_step_limits = False
        self._recent.clear()
        self._looks.clear()
        self._best_look = NO_LOOK

    def _take(self, blocks: list[Block]) -> list[ChartReading]:
        readings = [self._take_look(block) if block.is_look else self._take_block(block) for block in blocks]
        return [reading for reading in readings if reading is not None]

    def _take_look(self, look: Block) -> ChartReading | None:
        """Alarm when two looks in a row are high: one burst of slow steps is no incident yet."""
        before = self._looks[-1] if self._looks else None
        self._looks.append(RecentLook(look.begin_ns, look.end_ns, look.centre, look.low))
        step_ns = self.config.block_ns // self.config.looks_per_block
        if look.count < self.config.look_min_steps or before is None or look.end_ns - before.end_ns > step_ns:
            return None
        look = replace(look, low=min(look.low, before.low))
        if not look.low <= self._best_look[0]:
            self._best_look = (look.low, float(look.count))
        if self.limits is None or self.alarm.is_on or Detector.POINT not in self.config.detectors:
            return None
        verdict = self.judge.judge_look(look, self.limits)
        if verdict.score <= 1.0 or not verdict.is_large or is_new_work([], look, self.limits, 0):
            return None
        self._start_alarm(look, verdict)
        return self._tell(look, verdict)

    def _take_block(self, block: Block) -> ChartReading | None:
        look, self._best_look = self._best_look, NO_LOOK
        if self.grace > 0:
            self.grace -= 1
            return self._tell(block, None)
        if not block.count:
            self.counts["unseen_blocks"] += 1
            return self._tell(block, None)
        if self.limits is None:
            self.history.add(block, look, hold=False)
            self._learn()
            return self._tell(block, None)
        verdict = self.judge.judge(block, self.limits)
        self._recent.append(
            RecentBlock(block.begin_ns, block.spread, block.unseen / (block.unseen + block.count))
        )
        regime = self.regime
        is_recovered = self._update_alarm(block, verdict)
        if self.regime != regime:  # the work changed, not the engine
            return self._tell(block, None)
        if not self.alarm.is_on and not is_recovered:
            self.history.add(block, look, hold=True)
            self._learn()
        return self._tell(block, verdict, is_recovered=is_recovered)

    def _update_alarm(self, block: Block, verdict: Verdict) -> bool:
        """Start, carry on or end the alarm; return whether it ended."""
        assert self.limits is not None
        if self.alarm.is_on:
            values = self.judge.read_values(self.alarm.channel)
            if not self.alarm.follow(values, self.config.min_shift):
                return False
            self.alarm = Alarm()
            self.judge.reset()
            self._looks.clear()
            return True
        if verdict.score > 1.0 and verdict.is_large:
            if is_new_work(list(self._recent), block, self.limits, verdict.blocks):
                self.counts["regimes_by_work"] += 1
                self.mark_regime()
            else:
                self._start_alarm(block, verdict)
        return False

    def _start_alarm(self, block: Block, verdict: Verdict) -> None:
        assert self.limits is not None
        values = self.judge.read_values(verdict.channel)
        newest = Newest(values, list(self._recent), list(self._looks))
        onset_ns = estimate_onset(newest, block, verdict, self.limits.scales[verdict.channel].centre)
        self.alarm = Alarm(is_on=True, onset_ns=onset_ns, channel=verdict.channel)
        self.alarm.start(values, [recent.begin_ns for recent in self._recent], verdict)
        self.history.drop_since(onset_ns)
        self.counts["alarms"] += 1

    def _learn(self) -> None:
        """Fit what is due, the limits of blocks and of single steps at different blocks to spare the path."""
        if self._owes_step_limits:
            self._owes_step_limits = False
            self.flagger.limits = fit_step_limits(*self.history.read_steps(), self.config)
        elif self.history.is_due():
            name = f"{self.key.engine_id}\0{self.key.series}\0{self.key.kind}\0{self.regime}"
            rng = np.random.default_rng([self.seed, zlib.crc32(name.encode()), self.history.admitted])
            self.limits = fit_limits(self.history.read(), self.config, rng)
            self._owes_step_limits = True
            self.counts["fits"] += 1

    def _tell(self, block: Block, verdict: Verdict | None, *, is_recovered: bool = False) -> ChartReading:
        on = self.alarm.is_on
        return ChartReading(
            key=self.key,
            begin_ns=block.begin_ns,
            end_ns=block.end_ns,
            count=block.count or block.unseen,
            level=verdict.level if verdict else block.centre,
            score=max(0.0, verdict.score) if verdict else 0.0,
            detector=verdict.detector if verdict else Detector.POINT,
            is_alarm=on,
            onset_ns=self.alarm.onset_ns if on else 0,
            shift=self.alarm.shift if on else 0.0,
            upper_limit=verdict.upper if verdict else NAN,
            is_recovered=is_recovered,
            regime=self.regime,
        )
