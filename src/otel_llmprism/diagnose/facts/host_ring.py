# Rates and levels between two looks at a host, in a ring of bounded length, by name. Knows no cause.
import numpy as np

from otel_llmprism.diagnose.facts.bins import I64
from otel_llmprism.model.steps import F64

LOOKS = 240  # four minutes of one a second
MAX_HOST_NAMES = 1024


class HostRing:
    """One node's signals; each look covers (begin, end]."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._values: F64 = np.full((32, LOOKS), np.nan)
        self._begin: I64 = np.zeros(LOOKS, dtype=np.int64)
        self._end: I64 = np.zeros(LOOKS, dtype=np.int64)
        self.count = 0
        self.refused = 0

    @property
    def newest_ns(self) -> int:
        return int(self._end[(self.count - 1) % LOOKS]) if self.count else 0

    def add(self, begin_ns: int, end_ns: int, values: dict[str, float]) -> None:
        """Keep one look; a clock set back begins anew."""
        if end_ns <= begin_ns:
            self.refused += 1
            return
        if self.count and end_ns <= self.newest_ns:
            self.refused += 1
            self.count = 0
            self._end[:] = 0
        column = self.count % LOOKS
        self._values[:, column] = np.nan
        self._begin[column], self._end[column] = begin_ns, end_ns
        self.count += 1
        for name, value in values.items():
            row = self._find_row(name)
            if row is not None and np.isfinite(value):
                self._values[row, column] = value

    def list_looks(self, from_ns: int, to_ns: int) -> I64:
        """Return the columns of looks that lie within [from, to], oldest first."""
        return self._order((self._begin >= from_ns) & (self._end <= to_ns))

    def list_overlaps(self, from_ns: int, to_ns: int) -> I64:
        """Return the columns of looks that share time with (from, to), oldest first."""
        return self._order((self._end > from_ns) & (self._begin < to_ns))

    def read(self, name: str, columns: I64) -> F64:
        """Return a signal's values in these columns; NaN where it was not told."""
        row = self._rows.get(name)
        if row is None:
            return np.full(len(columns), np.nan)
        values: F64 = self._values[row, columns]
        return values

    def read_times(self, columns: I64) -> tuple[I64, I64]:
        return self._begin[columns], self._end[columns]

    def list_names(self, prefix: str) -> list[str]:
        return [name for name in self._rows if name.startswith(prefix)]

    def _order(self, is_chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> I64:
        columns: I64 = np.flatnonzero(is_chosen & (self._end > 0)).astype(np.int64)
        return columns[np.argsort(self._end[columns])]

    def _find_row(self, name: str) -> int | None:
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) >= MAX_HOST_NAMES:
                self.refused += 1
                return None
            row = self._rows[name] = len(self._rows)
            if row >= len(self._values):
                self._values = np.concatenate([self._values, np.full_like(self._values, np.nan)])
        return row
