import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_llmprism.exporters.otlp_metrics import Exemplar, HistogramReading, NumberReading, encode_metrics
from otel_llmprism.semconv import metric as names
from otel_llmprism.service.exporter_process.metric_store import MetricStore

KIND = {"kind": "decode"}


def read_histograms(store: MetricStore) -> list[HistogramReading]:
    return [reading for reading in store.read_all() if isinstance(reading, HistogramReading)]


def test_a_bucket_holds_its_upper_bound_and_not_its_lower() -> None:
    store = MetricStore()
    bounds = names.BUCKETS[names.STEP_CYCLE]
    store.observe(names.STEP_CYCLE, np.array([bounds[0], bounds[1], 1e9]), KIND)
    (reading,) = read_histograms(store)
    assert list(reading.counts) == [1, 1, *[0] * (len(bounds) - 2), 1]
    assert reading.total == bounds[0] + bounds[1] + 1e9


def test_readings_are_cumulative_and_exemplars_are_given_once() -> None:
    store = MetricStore()
    exemplar = Exemplar(0.003, 7, b"t" * 16, b"s" * 8)
    store.observe(names.STEP_CYCLE, np.array([0.003]), KIND)
    store.attach_exemplar(names.STEP_CYCLE, exemplar, KIND)
    assert read_histograms(store)[0].exemplars == [exemplar]
    store.observe(names.STEP_CYCLE, np.array([0.003]), KIND)
    (reading,) = read_histograms(store)
    assert sum(reading.counts) == 2
    assert reading.exemplars == []


def test_series_beyond_the_bound_are_folded_into_one_and_nothing_is_lost() -> None:
    store = MetricStore(max_series=10)
    for number in range(50):
        store.add(names.LOST, 1, {"stage": "x", "cause": str(number)})
    readings = list(store.read_all())
    assert len(readings) == 11
    assert sum(reading.value for reading in readings if isinstance(reading, NumberReading)) == 50
    assert {"otel.metric.overflow": "true"} in [reading.attributes for reading in readings]


def test_encoded_metrics_have_units_start_times_and_one_metric_a_name() -> None:
    store = MetricStore()
    store.add(names.STEP_TOKENS, 5, {"phase": "decode"})
    store.add(names.STEP_TOKENS, 7, {"phase": "prefill"})
    store.set_gauge(names.ENGINE_KV_USAGE, 0.5, {})
    store.observe(names.STEP_GAP, np.array([0.1]), KIND)
    raw = encode_metrics({"service.name": "s"}, store.read_all(), 3, 9)
    (resource,) = ExportMetricsServiceRequest.FromString(raw).resource_metrics
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    tokens = metrics[names.STEP_TOKENS]
    assert tokens.unit == "{token}"
    assert tokens.sum.is_monotonic
    assert tokens.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    points = {point.attributes[0].value.string_value: point for point in tokens.sum.data_points}
    assert (points["decode"].as_double, points["prefill"].as_double) == (5, 7)
    assert (points["decode"].start_time_unix_nano, points["decode"].time_unix_nano) == (3, 9)
    assert metrics[names.ENGINE_KV_USAGE].gauge.data_points[0].as_double == 0.5
    gap = metrics[names.STEP_GAP].histogram.data_points[0]
    assert tuple(gap.explicit_bounds) == names.BUCKETS[names.STEP_GAP]
    assert len(gap.bucket_counts) == len(gap.explicit_bounds) + 1
