# One engine's last half hour in blocks of a second, by kind of step: what was observed, expected and in it,
# and what the chart said. Scored batches and readings in; views for the page out.
import math
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.charts import Series
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.steps import UNKNOWN
from otel_llmprism.semconv.step import KINDS
from otel_llmprism.service.query.sentinel_view import BlockView
from otel_llmprism.service.sentinel.news import EngineReadings, ScoredBatch
from otel_llmprism.service.sentinel.work import Mask

_BLOCK_NS = 1_000_000_000
MAX_BLOCKS = 8000
_NS_PER_S = 1e9
_WORK = ("prefill_tokens", "decode_tokens", "kv_tokens", "waiting", "running")


@dataclass(slots=True)
class Block:
    """Sums over the steps of one kind that ended in one second of the node's clock."""

    begin_ns: int  # real time
    kind: int
    steps: int = 0
    observed_ns: float = 0.0  # medians of its parts, weighted with their steps
    expected_ns: float = 0.0
    expected_steps: int = 0
    excess_ns: float = 0.0
    gap_ns: int = 0
    work: tuple[float, ...] = (0.0,) * len(_WORK)
    upper: float = math.nan  # log ratio
    is_alarm: bool = False

    def to_view(self) -> BlockView:
        expected_s = self.expected_ns / self.expected_steps / _NS_PER_S if self.expected_steps else None
        upper_s = expected_s * math.exp(self.upper) if expected_s and math.isfinite(self.upper) else None
        return BlockView(
            self.begin_ns,
            KINDS[self.kind - 1],
            self.steps,
            self.observed_ns / self.steps / _NS_PER_S,
            expected_s,
            upper_s,
            self.excess_ns / _NS_PER_S,
            self.gap_ns / _NS_PER_S,
            **{name: total / self.steps for name, total in zip(_WORK, self.work, strict=True)},
            is_alarm=self.is_alarm,
        )


class EngineBlocks:
    """Bounded; the oldest leave."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[int, int], Block] = OrderedDict()

    def add(self, batch: ScoredBatch) -> None:
        scored = batch.scored
        if not len(scored):
            return
        seconds = (scored.time_ns // np.uint64(_BLOCK_NS)).astype(np.int64)
        keys = seconds * 8 + scored.kind
        for key in np.unique(keys).tolist():
            second, kind = divmod(key, 8)
            if 0 < kind <= len(KINDS):
                self._add_part(batch, keys == key, second, kind)

    def mark(self, told: EngineReadings) -> None:
        """Note what the chart of the cycles said about blocks."""
        for reading in told.readings:
            if reading.key.series is not Series.CYCLE:
                continue
            block = self._blocks.get((reading.begin_ns // _BLOCK_NS, reading.key.kind))
            if block is not None:
                block.is_alarm |= reading.is_alarm
                if math.isfinite(reading.upper_limit):
                    block.upper = reading.upper_limit

    def read(self, begin_ns: int, end_ns: int) -> list[BlockView]:
        chosen = [block for block in self._blocks.values() if begin_ns <= block.begin_ns < end_ns]
        return [block.to_view() for block in sorted(chosen, key=lambda block: (block.begin_ns, block.kind))]

    def _add_part(self, batch: ScoredBatch, rows: Mask, second: int, kind: int) -> None:
        block = self._blocks.get((second, kind))
        if block is None:
            begin_ns = to_real_ns(second * _BLOCK_NS, batch.anchor)
            block = self._blocks[second, kind] = Block(begin_ns, kind)
            if len(self._blocks) > MAX_BLOCKS:
                self._blocks.popitem(last=False)
        scored, steps = batch.scored, batch.tables.steps
        count = int(rows.sum())
        cycle = scored.cycle_ns[rows].astype(np.float64)
        expected = scored.expected_ns[rows]
        fine = np.isfinite(expected)
        block.steps += count
        block.observed_ns += float(np.median(cycle)) * count
        if fine.any():
            block.expected_ns += float(np.median(expected[fine])) * int(fine.sum())
            block.expected_steps += int(fine.sum())
            block.excess_ns += float((cycle[fine] - expected[fine]).sum())
        own = batch.rows[rows]
        gaps = steps.gap_ns[own]
        block.gap_ns += int(gaps[gaps != UNKNOWN].sum())
        totals = (float(_known(getattr(steps, name)[own]).sum()) for name in _WORK)
        block.work = tuple(before + more for before, more in zip(block.work, totals, strict=True))


def to_real_ns(node_ns: int, anchor: Anchor) -> int:
    return node_ns - anchor.monotonic_ns + anchor.realtime_ns


def _known(column: "np.typing.NDArray[np.generic]") -> "np.typing.NDArray[np.float64]":
    return np.where(column == UNKNOWN, 0, column).astype(np.float64)
