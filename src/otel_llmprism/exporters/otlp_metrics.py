# Cumulative metric readings -> one ExportMetricsServiceRequest. Pure: times come in, bytes go out.
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from otel_llmprism.exporters.otlp_attributes import Attributes, build_scope, to_key_values, to_resource

SCOPE = "otel_llmprism"
_CUMULATIVE = pb.AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One measured value and the kept trace where it happened."""

    value: float
    time_ns: int
    trace_id: bytes
    span_id: bytes


@dataclass(frozen=True, slots=True)
class HistogramReading:
    name: str
    unit: str
    attributes: Attributes
    bounds: Sequence[float]
    counts: Sequence[int]  # one more than bounds
    total: float
    exemplars: Sequence[Exemplar] = ()


@dataclass(frozen=True, slots=True)
class NumberReading:
    name: str
    unit: str
    attributes: Attributes
    value: float
    is_counter: bool
    is_monotonic: bool = True  # of a counter: it never falls


Reading = HistogramReading | NumberReading


def encode_metrics(
    resource: Attributes, readings: Iterable[Reading], start_ns: int, now_ns: int, version: str = ""
) -> bytes:
    """Return the request for all readings, one metric a name, points in the order they came."""
    request = ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add()
    resource_metrics.resource.CopyFrom(to_resource(resource))
    scope_metrics = resource_metrics.scope_metrics.add()
    scope_metrics.scope.CopyFrom(build_scope(SCOPE, version))
    for name, points in groupby(sorted(readings, key=lambda reading: reading.name), lambda r: r.name):
        metric = scope_metrics.metrics.add()
        metric.name = name
        for reading in points:
            metric.unit = reading.unit
            if isinstance(reading, HistogramReading):
                metric.histogram.aggregation_temporality = _CUMULATIVE
                metric.histogram.data_points.append(_to_histogram_point(reading, start_ns, now_ns))
            else:
                _add_number(metric, reading, start_ns, now_ns)
    encoded: bytes = request.SerializeToString()
    return encoded


def _add_number(metric: pb.Metric, reading: NumberReading, start_ns: int, now_ns: int) -> None:
    point = pb.NumberDataPoint(
        attributes=to_key_values(reading.attributes), time_unix_nano=now_ns, as_double=reading.value
    )
    if not reading.is_counter:
        metric.gauge.data_points.append(point)
        return
    point.start_time_unix_nano = start_ns
    metric.sum.aggregation_temporality = _CUMULATIVE
    metric.sum.is_monotonic = reading.is_monotonic
    metric.sum.data_points.append(point)


def _to_histogram_point(reading: HistogramReading, start_ns: int, now_ns: int) -> pb.HistogramDataPoint:
    return pb.HistogramDataPoint(
        attributes=to_key_values(reading.attributes),
        start_time_unix_nano=start_ns,
        time_unix_nano=now_ns,
        count=sum(reading.counts),
        sum=reading.total,
        bucket_counts=reading.counts,
        explicit_bounds=reading.bounds,
        exemplars=[
            pb.Exemplar(
                as_double=exemplar.value,
                time_unix_nano=exemplar.time_ns,
                trace_id=exemplar.trace_id,
                span_id=exemplar.span_id,
            )
            for exemplar in reading.exemplars
        ],
    )
