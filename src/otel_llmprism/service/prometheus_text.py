# Our counters as Prometheus metric families, named as OpenTelemetry's Prometheus compatibility says:
# dots become underscores, the unit is appended in words, prometheus_client adds `_total` to counters.
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from otel_llmprism.pipeline.counters import Counters, Reading

_UNIT_WORDS = {"s": "seconds", "ms": "milliseconds", "By": "bytes"}


class CountersCollector(Collector):
    def __init__(self, counters: Counters, units: Mapping[str, str]) -> None:
        self._counters = counters
        self._units = units

    def collect(self) -> Iterable[Metric]:
        """Yield one family per name; label sets that differ are filled with empty values."""
        for name, group in groupby(self._counters.read_all(), key=lambda reading: reading.name):
            yield self._build_family(name, list(group))

    def describe(self) -> Iterable[Metric]:
        """Say nothing before there are counts: names come and go with what was counted."""
        return []

    def _build_family(self, name: str, readings: list[Reading]) -> Metric:
        labels = sorted({label for reading in readings for label in reading.labels})
        unit = self._units.get(name, "")
        kind = GaugeMetricFamily if readings[0].is_gauge else CounterMetricFamily
        help_text = f"{name} in {unit}" if unit else name
        family = kind(to_prometheus_name(name, unit), help_text, labels=list(_rename_labels(labels)))
        for reading in readings:
            family.add_metric([reading.labels.get(label, "") for label in labels], reading.value)
        return family


def to_prometheus_name(name: str, unit: str) -> str:
    """Return `llmprism_queue_oldest_age_seconds` for `llmprism.queue.oldest_age` in s."""
    plain = name.replace(".", "_").replace("-", "_")
    word = _UNIT_WORDS.get(unit, "")
    return plain if not word or plain.endswith(f"_{word}") else f"{plain}_{word}"


def _rename_labels(labels: Iterable[str]) -> Iterator[str]:
    return (label.replace(".", "_").replace("-", "_") for label in labels)
