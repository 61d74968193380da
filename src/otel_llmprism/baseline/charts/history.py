# Blocks of normal running are kept here for as long as limits are learned from them. What an alarm proves to
# have been abnormal is thrown out before it is learned; what was merely flagged stays, or the tails shrink.
from collections import deque

import numpy as np

from otel_llmprism.baseline.charts.blocks import Block
from otel_llmprism.baseline.charts.config import ChartConfig
from otel_llmprism.baseline.charts.limits import History
from otel_llmprism.model.steps import F64

STEP_SHARE = 60  # one block gives at most this part of the kept steps, so that they span a minute
COLUMNS = 8
Row = tuple[float, float, float, float, float, float, float, float]


class BlockHistory:
    """Bounded; `hold_blocks` wait between being seen and being learned from."""

    def __init__(self, config: ChartConfig) -> None:
        self._config = config
        self._rows: deque[Row] = deque(maxlen=config.history_blocks)
        self._steps: deque[tuple[F64, F64]] = deque()
        self._step_count = 0
        self._held: deque[tuple[Block, Row]] = deque()
        self.admitted = 0
        self.next_fit = config.min_blocks

    def add(self, block: Block, look: tuple[float, float], *, hold: bool) -> None:
        row = (
            block.centre,
            block.burden,
            float(block.count),
            block.within,
            block.spread,
            block.load,
            look[0],
            look[1],
        )
        self._held.append((block, row))
        while len(self._held) > (self._config.hold_blocks if hold else 0):
            self._admit(*self._held.popleft())

    def drop_since(self, onset_ns: int) -> None:
        """Forget what has not been learned yet and is not older than `onset_ns`."""
        self._held = deque(entry for entry in self._held if entry[0].end_ns <= onset_ns)

    def is_due(self) -> bool:
        """Whether limits should be fitted now: at doubling numbers of blocks, then twice a full history."""
        if self.admitted < self.next_fit:
            return False
        self.next_fit = self.admitted + max(1, min(self.admitted, self._config.history_blocks // 2))
        return True

    def read(self) -> History:
        columns = np.array(self._rows, dtype=np.float64).reshape(-1, COLUMNS).T
        return History(*columns)

    def read_steps(self) -> tuple[F64, F64]:
        if not self._steps:
            return np.empty(0), np.empty(0)
        residual, spread = zip(*self._steps, strict=True)
        return np.concatenate(residual), np.concatenate(spread)

    def read_newest(self, blocks: int, steps: int) -> tuple[list[Row], F64, F64]:
        """Return at most so many, oldest first, for `restore` after a restart."""
        residual, spread = self.read_steps()
        return list(self._rows)[-blocks:], residual[-steps:], spread[-steps:]

    def restore(
        self, rows: list[list[float]], residual: F64, spread: F64, admitted: int, next_fit: int
    ) -> None:
        self._rows.extend((r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]) for r in rows)
        self._steps.clear()
        self._steps.append((residual, spread))
        self._step_count = len(residual)
        self.admitted, self.next_fit = admitted, next_fit

    def _admit(self, block: Block, row: Row) -> None:
        self._rows.append(row)
        self.admitted += 1
        share = max(1, self._config.step_history // STEP_SHARE)
        # Copies, so that a slice does not keep a whole parcel alive.
        self._steps.append((block.ratios[:share].copy(), block.spreads[:share].copy()))
        self._step_count += len(self._steps[-1][0])
        while self._step_count > self._config.step_history and len(self._steps) > 1:
            self._step_count -= len(self._steps.popleft()[0])
