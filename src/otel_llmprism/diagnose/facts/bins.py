# Sums by quarter second in a ring of bounded length: what steps and requests said, by name and real time.
# A quarter, not a second: an incident is told of within two seconds of its onset, and onsets are not round.
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import F64

I64 = npt.NDArray[np.int64]
BIN_NS = 250_000_000
BIN_COUNT = 960  # four minutes
MAX_NAMES = 1024
_MAX_JUMP_BINS = 4 * 3600 * 24  # a clock that jumps further is another clock


class BinRing:
    """One engine's sums; what comes too late or lies beyond MAX_NAMES is counted in `refused`."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._sums: F64 = np.zeros((8, BIN_COUNT))
        self.newest = -1  # the bin of the latest fact
        self.oldest = -1  # the first bin told of that the ring still holds
        self.refused = 0

    def add(self, name: str, time_ns: I64, amount: npt.NDArray[np.generic]) -> None:
        """Add each amount to its time's bin; what is not finite is counted and left out."""
        self.add_columns(time_ns, {name: amount})

    def add_columns(self, time_ns: I64, columns: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Add several columns of the same times at once."""
        if not len(time_ns):
            return
        bins = time_ns // BIN_NS
        first, last = int(bins.min()), int(bins.max())
        self._advance(last, first)
        matrix = np.array(list(columns.values()), dtype=np.float64)
        is_sound = np.isfinite(matrix)
        if not is_sound.all():
            self.refused += int(matrix.size - np.count_nonzero(is_sound))
            matrix[~is_sound] = 0.0
        rows = [self._find_row(name) for name in columns]
        # A batch spans a few bins, unless somebody's clock is broken.
        for one in (first,) if first == last else np.unique(bins).tolist():
            if one <= self.newest - BIN_COUNT:
                self.refused += int(np.count_nonzero(bins == one))
                continue
            sums = (matrix if first == last else matrix[:, bins == one]).sum(axis=1)
            for row, amount in zip(rows, sums.tolist(), strict=True):
                if row is not None:
                    self._sums[row, one % BIN_COUNT] += amount

    def sum_between(self, name: str, from_ns: int, to_ns: int) -> float:
        """Return the sum over the bins that begin in [from, to)."""
        return float(self.read(name, self.list_bins(from_ns, to_ns)).sum())

    def read(self, name: str, bins: I64) -> F64:
        """Return the sums of these bins; 0 where nothing was told."""
        row = self._rows.get(name)
        if row is None:
            return np.zeros(len(bins))
        values: F64 = self._sums[row, bins % BIN_COUNT]
        return values

    def list_bins(self, from_ns: int, to_ns: int) -> I64:
        """Return the bins that begin in [from, to) and that the ring still holds."""
        if self.newest < 0:
            return np.zeros(0, dtype=np.int64)
        first = max(-(-from_ns // BIN_NS), self.newest - BIN_COUNT + 1, self.oldest)
        last = min(-(-to_ns // BIN_NS), self.newest + 1)
        return np.arange(first, max(first, last), dtype=np.int64)

    def list_names(self, prefix: str) -> list[str]:
        return [name for name in self._rows if name.startswith(prefix)]

    def _advance(self, newest: int, oldest: int) -> None:
        is_other_clock = newest > self.newest + _MAX_JUMP_BINS or newest < self.newest - BIN_COUNT
        if self.newest < 0 or is_other_clock:
            self.refused += 0 if self.newest < 0 else 1
            self._sums[:] = 0
            self.newest, self.oldest = newest, max(oldest, newest - BIN_COUNT + 1)
            return
        if newest > self.newest:
            fresh = np.arange(max(self.newest + 1, newest - BIN_COUNT + 1), newest + 1) % BIN_COUNT
            self._sums[:, fresh] = 0
            self.newest = newest
        self.oldest = max(min(self.oldest, oldest), self.newest - BIN_COUNT + 1)

    def _find_row(self, name: str) -> int | None:
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) >= MAX_NAMES:
                self.refused += 1
                return None
            row = self._rows[name] = len(self._rows)
            if row >= len(self._sums):
                self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
        return row
