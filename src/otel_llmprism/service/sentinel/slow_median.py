# What is usual of a number that has no model: the median of a bounded random sample of the past, so that it
# follows slowly and a burst does not move it. Randomness by seed.
import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]

_READ_EVERY = 32  # values between two readings of the median


class SlowMedian:
    """NaN until `wanted` values were seen."""

    def __init__(self, seed: int, capacity: int = 512, wanted: int = 64) -> None:
        self._random = np.random.default_rng(seed)
        self._values = np.zeros(capacity)
        self._wanted = wanted
        self._seen = 0
        self._stale = 0
        self._median = float("nan")

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """Take values in; what is not finite is passed over."""
        fine = values[np.isfinite(values)]
        free = max(0, len(self._values) - self._seen)
        first, rest = fine[:free], fine[free:]
        self._values[self._seen : self._seen + len(first)] = first
        if len(rest):
            # As if the sample were of the last 8 capacities: old values leave in time, slowly.
            is_taken = self._random.random(len(rest)) < 1 / 8
            places = self._random.integers(0, len(self._values), int(is_taken.sum()))
            self._values[places] = rest[is_taken]
        self._seen = min(self._seen + len(fine), 1 << 40)
        self._stale += len(fine)

    def read(self) -> float:
        """Return the median; it lags by at most some values."""
        if self._seen < self._wanted:
            return float("nan")
        if self._stale >= _READ_EVERY or self._median != self._median:
            self._median = float(np.median(self._values[: min(self._seen, len(self._values))]))
            self._stale = 0
        return self._median

    def dump(self) -> list[float]:
        return [round(value, 9) for value in self._values[: min(self._seen, len(self._values))].tolist()]

    def load(self, values: object) -> None:
        """Take a dump over; anything else is passed over."""
        if isinstance(values, list) and all(isinstance(value, int | float) for value in values):
            self.add(np.array(values[: len(self._values)], dtype=np.float64))
