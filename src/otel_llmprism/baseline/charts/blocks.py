# Log ratios with their times come in, robust blocks of fixed data time and looks at the open one go out.
# Knows no limits and no wall clock: a block ends when a later row or an explicit time says so.
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from otel_llmprism.model.steps import F64, Table

MAX_OPEN_ROWS = 65_536  # of one block; more are counted, not kept
JUMP_NS = 60_000_000_000  # a clock that goes back further has been set, rows that go back less are late


@dataclass(frozen=True, slots=True)
class RatioTable(Table):
    """Log ratios of one chart; finite, in the order they came."""

    time_ns: F64 | np.ndarray[tuple[int], np.dtype[np.int64]]
    ratio: F64
    weight: F64  # what the ratio is a ratio to: expected seconds, or busy seconds
    spread: F64  # the model's own doubt
    is_known: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def take(self, rows: slice | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> "RatioTable":
        return RatioTable(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Block:
    """What one block, or one look at an open block, says."""

    begin_ns: int
    end_ns: int
    count: int  # of rows with known work
    unseen: int  # of rows whose work was never seen
    centre: float  # mean of the middle half of the log ratios; NaN without known rows
    burden: float  # log of the total against the total expected: sees what hits few steps hard
    within: float  # robust standard deviation of single rows; NaN below four
    spread: float
    load: float  # mean log of the weight
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
        self._open: list[RatioTable] = []
        self._recent: deque[tuple[int, list[RatioTable]]] = deque(maxlen=2)
        self._rows = 0
        self._look = -1  # number of the open look; -1: nothing open

    def add(self, rows: RatioTable) -> Iterator[Block]:
        """Yield what the rows close; each look before the block it belongs to."""
        while len(rows):
            looks = rows.time_ns.astype(np.int64) // self._look_ns
            reached = np.maximum.accumulate(np.maximum(looks, self._look))
            behind = reached - looks
            self._counts["late"] += int(np.count_nonzero(behind))
            jumps = np.flatnonzero(behind > JUMP_NS // self._look_ns)
            stop = int(jumps[0]) if len(jumps) else len(rows)
            yield from self._add_ordered(rows.take(slice(0, stop)), reached[:stop])
            if len(jumps):
                self._counts["clock_back"] += 1
                yield from self._close_look()
                yield from self._close_block()
                self._look = -1
            rows = rows.take(slice(stop, None))

    def advance(self, time_ns: int) -> Iterator[Block]:
        """Close what ended before `time_ns`."""
        if self._look >= 0 and time_ns // self._look_ns > self._look:
            yield from self._move_to(time_ns // self._look_ns)

    def _add_ordered(
        self, rows: RatioTable, looks: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> Iterator[Block]:
        if not len(rows):
            return
        cuts = [0, *(np.flatnonzero(np.diff(looks)) + 1).tolist(), len(rows)]
        for start, stop in pairwise(cuts):
            yield from self._move_to(int(looks[start]))
            part = rows.take(slice(start, stop))
            room = MAX_OPEN_ROWS - self._rows
            if len(part) > room:
                self._counts["over_block"] += len(part) - room
                part = part.take(slice(0, room))
            self._rows += len(part)
            if not self._recent or self._recent[-1][0] != self._look:
                self._recent.append((self._look, []))
            self._recent[-1][1].append(part)
            self._open.append(part)

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
        if self._recent and self._recent[-1][0] == self._look and sum(map(len, parts)) >= self._min:
            first = max(self._recent[0][0], self._look - 1)
            yield summarise(parts, first * self._look_ns, (self._look + 1) * self._look_ns, is_look=True)

    def _close_block(self) -> Iterator[Block]:
        if self._open:
            block = self._look // self._looks
            size = self._look_ns * self._looks
            yield summarise(self._open, block * size, (block + 1) * size)
        self._open = []
        self._rows = 0


def summarise(parts: list[RatioTable], begin_ns: int, end_ns: int, *, is_look: bool = False) -> Block:
    """Return the block of these rows."""
    known = np.concatenate([part.is_known for part in parts])
    columns = [
        np.concatenate([getattr(part, name) for part in parts]) for name in ("ratio", "weight", "spread")
    ]
    ratio, weight, spread = (column[known] for column in columns)
    count = len(ratio)
    if not count:
        empty = np.empty(0)
        nan = float("nan")
        all_spread = float(columns[2].mean())
        return Block(begin_ns, end_ns, 0, len(known), nan, nan, nan, all_spread, nan, empty, empty, is_look)
    ordered = np.sort(ratio)
    quarter = count // 4
    centre = float(ordered[quarter : count - quarter].mean())
    iqr = float(ordered[count - 1 - quarter] - ordered[quarter]) if count >= 4 else float("nan")
    burden = float(np.log(weight @ np.exp(np.minimum(ratio, 30.0)) / weight.sum()))
    load = float(np.log(weight).mean())
    return Block(
        begin_ns,
        end_ns,
        count,
        len(known) - count,
        centre,
        burden,
        iqr / 1.349,
        float(spread.mean()),
        load,
        ratio,
        spread,
        is_look,
    )
