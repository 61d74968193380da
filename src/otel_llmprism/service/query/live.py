# Live numbers for the page: rates from the counters' growth, losses by cause, what is stored.
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.latest_metrics import LatestMetrics
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.semconv.store import STORE_DUPLICATES, STORE_FORGOTTEN, STORE_SPANS, STORE_USED_BYTES

WINDOW_NS = 10 * 10**9
_MIN_STEP_NS = 500_000_000  # pages that ask more often share a sample
_MAX_SAMPLES = 64


class LiveNumbers:
    """Thread-safe; remembers the last WINDOW_NS of the span counter to tell a rate."""

    def __init__(
        self,
        counters: Counters,
        catalog: StoreCatalog,
        latest_metrics: LatestMetrics,
        read_monotonic_ns: Callable[[], int],
    ) -> None:
        self._counters = counters
        self._catalog = catalog
        self._latest_metrics = latest_metrics
        self._read_monotonic_ns = read_monotonic_ns
        self._lock = threading.Lock()
        self._samples: deque[tuple[int, float]] = deque(maxlen=_MAX_SAMPLES)
        self._samples.append((read_monotonic_ns(), counters.value(STORE_SPANS)))

    def read_numbers(self) -> dict[str, Any]:
        """Return what the page shows; asking takes a sample."""
        size = self._catalog.measure_size()
        readings = self._counters.read_all()
        return {
            "spansPerSecond": self._measure_rate(),
            "storedSpans": size.spans,
            "storedBytes": int(self._counters.value(STORE_USED_BYTES)),
            "otlpBytes": size.raw_bytes,
            "oldestNs": None if size.oldest_ns is None else str(size.oldest_ns),
            "duplicates": int(self._counters.value(STORE_DUPLICATES)),
            "forgotten": int(self._counters.value(STORE_FORGOTTEN)),
            "lost": [
                {**reading.labels, "count": int(reading.value)}
                for reading in readings
                if reading.name == LOST and reading.value
            ],
            "counters": [
                {"name": reading.name, "labels": dict(reading.labels), "value": reading.value}
                for reading in readings
            ],
        }

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the latest value of each of our metrics."""
        return [
            {
                "metric": point.metric,
                "unit": point.unit,
                "service": point.service,
                "attributes": dict(point.attributes),
                "timeNs": str(point.time_ns),
                "value": point.value if abs(point.value) < float("inf") else None,
                "count": point.count,
                "isDelta": point.is_delta,
            }
            for point in self._latest_metrics.read_all()
        ]

    def _measure_rate(self) -> float:
        now, total = self._read_monotonic_ns(), self._counters.value(STORE_SPANS)
        with self._lock:
            if now - self._samples[-1][0] >= _MIN_STEP_NS:
                self._samples.append((now, total))
            while len(self._samples) > 1 and now - self._samples[1][0] >= WINDOW_NS:
                self._samples.popleft()
            then, before = self._samples[0]
        return (total - before) * 1e9 / (now - then) if now > then else 0.0
