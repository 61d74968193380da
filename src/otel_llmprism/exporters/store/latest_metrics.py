# The latest value of each of our metrics, in memory, for the page's live numbers. Not a metric store:
# history belongs to Prometheus.
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_llmprism.exporters.store.decode import decode_resource
from otel_llmprism.exporters.store.scan_columns import SERVICE_NAME, UNNAMED_SERVICE

MAX_SERIES: Final = 2000
_PREFIXES: Final = ("llmprism.", "gen_ai.server.")
_MAX_ATTRIBUTES: Final = 16


@dataclass(frozen=True, slots=True)
class LatestPoint:
    metric: str
    unit: str
    service: str
    attributes: Mapping[str, str]
    time_ns: int
    value: float  # of a histogram: the sum
    count: int | None  # of a histogram only
    is_delta: bool


class LatestMetrics:
    """Thread-safe; series beyond `max_series` are left out and counted in `overflow`."""

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._lock = threading.Lock()
        self._points: dict[tuple[str, str, tuple[tuple[str, str], ...]], LatestPoint] = {}
        self._max_series = max_series
        self.overflow = 0

    def note_request(self, payload: bytes) -> None:
        """Take the points of one metrics request; what cannot be decoded is left out."""
        try:
            request = ExportMetricsServiceRequest.FromString(payload)
        except DecodeError:
            return
        for point in _list_points(request):
            key = (point.service, point.metric, tuple(sorted(point.attributes.items())))
            with self._lock:
                if key not in self._points and len(self._points) >= self._max_series:
                    self.overflow += 1
                else:
                    self._points[key] = point

    def read_all(self) -> list[LatestPoint]:
        with self._lock:
            return [self._points[key] for key in sorted(self._points)]


def _list_points(request: ExportMetricsServiceRequest) -> Iterator[LatestPoint]:
    for resource in request.resource_metrics:
        attributes = decode_resource(resource.resource.SerializeToString())
        service = str(attributes.get(SERVICE_NAME) or UNNAMED_SERVICE)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name.startswith(_PREFIXES):
                    yield from _list_metric_points(metric, service)


def _list_metric_points(metric: Any, service: str) -> Iterator[LatestPoint]:
    kind = metric.WhichOneof("data")
    if kind not in {"gauge", "sum", "histogram", "exponential_histogram"}:
        return
    data = getattr(metric, kind)
    is_delta = getattr(data, "aggregation_temporality", 0) == 1
    for point in data.data_points:
        attributes = {
            pair.key: str(getattr(pair.value, pair.value.WhichOneof("value") or "string_value"))
            for pair in point.attributes[:_MAX_ATTRIBUTES]
        }
        is_histogram = kind.endswith("histogram")
        value = point.sum if is_histogram else getattr(point, point.WhichOneof("value") or "as_double")
        yield LatestPoint(
            *(metric.name, metric.unit, service, attributes, point.time_unix_nano, float(value)),
            point.count if is_histogram else None,
            is_delta,
        )
