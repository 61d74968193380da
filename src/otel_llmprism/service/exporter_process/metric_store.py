# Cumulative counters, gauges and explicit-bucket histograms with a closed bound on series; readings out
# for the encoder. One thread; knows no transport and no clock.
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from otel_llmprism.exporters.otlp_metrics import Exemplar, HistogramReading, NumberReading, Reading
from otel_llmprism.semconv import metric as names

MAX_SERIES = 2000
_OVERFLOW = (("otel.metric.overflow", "true"),)

_Labels = tuple[tuple[str, str], ...]
_Key = tuple[str, _Labels]


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = np.array(bounds)
        self.counts = np.zeros(len(bounds) + 1, dtype=np.int64)
        self.total = 0.0
        self.exemplars: dict[int, Exemplar] = {}  # the latest of each bucket

    def observe(self, values: npt.NDArray[np.float64]) -> None:
        # A bucket holds (lower, upper], hence "left".
        places = np.searchsorted(self.bounds, values, side="left")
        self.counts += np.bincount(places, minlength=len(self.counts))
        self.total += float(values.sum())


class MetricStore:
    """A series beyond `max_series` is folded into one overflow series of its metric."""

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._counters: dict[_Key, float] = {}
        self._gauges: dict[_Key, float] = {}
        self._histograms: dict[_Key, _Histogram] = {}

    def add(self, name: str, amount: float, labels: Mapping[str, str]) -> None:
        key = self._admit(name, labels)
        self._counters[key] = self._counters.get(key, 0.0) + amount

    def set_gauge(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        self._gauges[self._admit(name, labels)] = value

    def set_counter(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Take over a counter that is counted elsewhere."""
        self._counters[self._admit(name, labels)] = value

    def observe(self, name: str, values: npt.NDArray[np.float64], labels: Mapping[str, str]) -> None:
        """Add values to a histogram of semconv.metric.BUCKETS."""
        if values.size:
            self._find_histogram(name, labels).observe(values)

    def attach_exemplar(self, name: str, exemplar: Exemplar, labels: Mapping[str, str]) -> None:
        """Remember where an observed value happened; the caller knows that this trace is kept."""
        histogram = self._find_histogram(name, labels)
        bucket = int(np.searchsorted(histogram.bounds, exemplar.value, side="left"))
        histogram.exemplars[bucket] = exemplar

    def read_all(self) -> Iterator[Reading]:
        """Yield every series; exemplars are given once."""
        for (name, labels), value in self._counters.items():
            yield NumberReading(name, names.UNITS.get(name, ""), dict(labels), value, is_counter=True)
        for (name, labels), value in self._gauges.items():
            yield NumberReading(name, names.UNITS.get(name, ""), dict(labels), value, is_counter=False)
        for (name, labels), histogram in self._histograms.items():
            exemplars, histogram.exemplars = list(histogram.exemplars.values()), {}
            yield HistogramReading(
                name=name,
                unit=names.UNITS.get(name, ""),
                attributes=dict(labels),
                bounds=histogram.bounds.tolist(),
                counts=histogram.counts.tolist(),
                total=histogram.total,
                exemplars=exemplars,
            )

    def _find_histogram(self, name: str, labels: Mapping[str, str]) -> _Histogram:
        key = self._admit(name, labels)
        if key not in self._histograms:
            self._histograms[key] = _Histogram(names.BUCKETS[name])
        return self._histograms[key]

    def _admit(self, name: str, labels: Mapping[str, str]) -> _Key:
        key = (name, tuple(sorted(labels.items())))
        is_known = key in self._counters or key in self._gauges or key in self._histograms
        count = len(self._counters) + len(self._gauges) + len(self._histograms)
        return key if is_known or count < self._max_series else (name, _OVERFLOW)
