# Our own telemetry: monotonic counters and gauges with a closed set of labels, bounded in series.
# Knows no exporter: a snapshot is read by the metrics endpoint and by the exporter process.
import threading
from collections.abc import Mapping
from dataclasses import dataclass

MAX_SERIES = 2000
OVERFLOW = "llmprism.counters.overflow"

_Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Reading:
    name: str
    labels: Mapping[str, str]
    value: float
    is_gauge: bool


class Counters:
    """Thread-safe; a new series beyond `max_series` is counted under OVERFLOW instead."""

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._lock = threading.Lock()
        self._values: dict[_Key, float] = {}
        self._gauges: set[str] = set()

    def add(self, name: str, amount: float = 1, /, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._values[self._admit(key)] = self._values.get(self._admit(key), 0) + amount

    def set(self, name: str, value: float, /, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            admitted = self._admit(key)
            self._gauges.add(admitted[0])
            self._values[admitted] = value

    def value(self, name: str, /, **labels: str) -> float:
        with self._lock:
            return self._values.get((name, tuple(sorted(labels.items()))), 0)

    def read_all(self) -> list[Reading]:
        with self._lock:
            return [
                Reading(name, dict(labels), value, name in self._gauges)
                for (name, labels), value in sorted(self._values.items())
            ]

    def _admit(self, key: _Key) -> _Key:
        if key in self._values or len(self._values) < self._max_series:
            return key
        return (OVERFLOW, ())
