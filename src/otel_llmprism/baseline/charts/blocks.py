# Log ratios with their times come in, robust blocks of fixed data time and looks at the open one go out.
# Knows no limits and no wall clock: a block ends when a later row or an explicit time says so.
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import F64

I64 = npt.NDArray[np.int64]
MAX_OPEN_ROWS = 65_536  # of one block; more are counted, not kept
JUMP_NS = 60_000_000_000  # a clock that goes back further has been set, rows that go back less are late

# Rows travel as one array, a column of it each: finite log ratio; what it is a ratio to, in seconds; the
# model's own doubt; 1 where such work was seen in training. One array, since small ones cost by their number.
RATIO, WEIGHT, SPREAD, KNOWN = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Block:
    """What one block, or one look at an open block, says."""

    begin_ns: int
    end_ns: int
    count: int  # of rows with known work
    unseen: int  # of rows whose work was never seen
    centre: float  # mean of the middle half of the log ratios; NaN without known rows
    low: float  # lower quartile: three of four rows are above it
    burden: float  # log of the total against the total expected: sees what hits few steps hard
    within: float  # robust standard deviation of single rows; NaN below four
    spread: float
    load: float  # log of the mean weight
    ratios: F64
    spreads: F64
    is_look: bool = False


class BlockBuilder:
    """Cuts one chart's rows into blocks; memory bounded by one block."""

    def __init__(self, block_ns: int, looks: int, look_min_steps: int, counts: Counter[str]) -> None:
        self._look_ns = block_ns // looks
        self._looks = looks
        self._min = look_min_steps
        self._counts = counts
        self._open: list[F64] = []
        self._recent: deque[tuple[int, list[F64]]] = deque(maxlen=2)
        self._rows = 0
        self._look = -1  # number of the open look; -1: nothing open

    def add(self, time_ns: I64, rows: F64) -> Iterator[Block]:
        """Yield what the rows close; each look before the block it belongs to."""
        while len(time_ns):
            looks = time_ns // self._look_ns
            reached = np.maximum.accumulate(np.maximum(looks, self._look))
            behind = reached - looks
            stop = len(time_ns)
            if behind.any():
                self._counts["late"] += int(np.count_nonzero(behind))
                jumps = np.flatnonzero(behind > JUMP_NS // self._look_ns)
                stop = int(jumps[0]) if len(jumps) else stop
            yield from self._add_ordered(rows[:, :stop], reached[:stop])
            if stop < len(time_ns):
                self._counts["clock_back"] += 1
                yield from self._close_look()
                yield from self._close_block()
                self._look = -1
            time_ns, rows = time_ns[stop:], rows[:, stop:]

    def advance(self, time_ns: int) -> Iterator[Block]:
        """Close what ended before `time_ns`."""
        if self._look >= 0 and time_ns // self._look_ns > self._look:
            yield from self._move_to(time_ns // self._look_ns)

    def _add_ordered(self, rows: F64, looks: I64) -> Iterator[Block]:
        if not len(looks):
            return
        cuts = [0, *(np.flatnonzero(looks[1:] != looks[:-1]) + 1).tolist(), len(looks)]
        for start, stop in pairwise(cuts):
            yield from self._move_to(int(looks[start]))
            kept = min(stop, start + MAX_OPEN_ROWS - self._rows)
            if kept < stop:
                self._counts["over_block"] += stop - kept
            self._rows += kept - start
            if not self._recent or self._recent[-1][0] != self._look:
                self._recent.append((self._look, []))
            self._recent[-1][1].append(rows[:, start:kept])
            self._open.append(rows[:, start:kept])

    def _move_to(self, look: int) -> Iterator[Block]:
        if look == self._look:
            return
        if self._look >= 0:
            yield from self._close_look()
            if look // self._looks != self._look // self._looks:
                yield from self._close_block()
        self._look = look

    def _close_look(self) -> Iterator[Block]:
        parts = [part for look, kept in self._recent if look >= self._look - 1 for part in kept]
        if (
            self._recent
            and self._recent[-1][0] == self._look
            and sum(part.shape[1] for part in parts) >= self._min
        ):
            first = max(self._recent[0][0], self._look - 1)
            yield summarise(parts, first * self._look_ns, (self._look + 1) * self._look_ns, is_look=True)

    def _close_block(self) -> Iterator[Block]:
        if self._open:
            block = self._look // self._looks
            size = self._look_ns * self._looks
            yield summarise(self._open, block * size, (block + 1) * size)
        self._open = []
        self._rows = 0


def summarise(parts: list[F64], begin_ns: int, end_ns: int, *, is_look: bool = False) -> Block:
    """Return the block of these rows."""
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    total = rows.shape[1]
    known = rows[KNOWN] > 0
    if not known.all():
        rows = rows[:, known]
    count = rows.shape[1]
    if not count:
        nan = float("nan")
        spread = float(np.concatenate(parts, axis=1)[SPREAD].mean())
        empty = np.empty(0)
        return Block(begin_ns, end_ns, 0, total, nan, nan, nan, nan, spread, nan, empty, empty, is_look)
    ordered = np.sort(rows[RATIO])
    quarter = count // 4
    if count >= 4:
        centre = float(np.add.reduce(ordered[quarter : count - quarter])) / (count - 2 * quarter)
    else:  # the lower median: of two or three, one may be anything
        centre = float(ordered[(count - 1) // 2])
    low, high = float(ordered[quarter]), float(ordered[count - 1 - quarter])
    within = (high - low) / 1.349 if count >= 4 else float("nan")
    spread = float(np.add.reduce(rows[SPREAD])) / count
    if is_look:
        burden, load = centre, float(np.log(np.add.reduce(rows[WEIGHT]) / count))
    else:
        burden = float(np.log(rows[WEIGHT] @ np.exp(rows[RATIO]) / np.add.reduce(rows[WEIGHT])))
        load = float(np.log(np.add.reduce(rows[WEIGHT]) / count))
    return Block(
        begin_ns,
        end_ns,
        count,
        total - count,
        centre,
        low,
        burden,
        within,
        spread,
        load,
        rows[RATIO],
        rows[SPREAD],
        is_look,
    )
