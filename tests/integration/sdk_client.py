# A client made of the OpenTelemetry Python SDK, run as a program: sends traces, logs and metrics with every
# shape of value to where OTEL_EXPORTER_OTLP_* says, then ends. `sdk_client.py grpc|http`
import logging
import sys
from collections.abc import Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanKind, StatusCode

RESOURCE = Resource.create({"service.name": "sdk-client", "unicode": "größer 日本語"})
SPANS = 60


def main() -> None:
    is_http = sys.argv[1] == "http"
    send_traces(HttpSpans() if is_http else GrpcSpans())
    send_logs(HttpLogs() if is_http else GrpcLogs())
    send_metrics(HttpMetrics() if is_http else GrpcMetrics())


def build_attributes(number: int) -> Mapping[str, Any]:
    return {
        "text": "größer 日本語 \0 end",
        "empty": "",
        "number": -number,
        "big": 2**63 - 1,
        "ratio": 0.1 * number,
        "flag": number % 2 == 0,
        "texts": ["a", "", "ü"],
        "numbers": [-1, 0, 1],
        "flags": [True, False],
        "long": "x" * 300,
    }


def send_traces(exporter: Any) -> None:
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=16))
    tracer = provider.get_tracer("sdk-client", "1.2.3", schema_url="https://example.org/schema")
    kinds = list(SpanKind)
    links: list[Link] = []
    for number in range(SPANS):
        attributes = build_attributes(number)
        with tracer.start_as_current_span(
            f"operation {number}", kind=kinds[number % 5], attributes=attributes, links=links
        ) as span:
            span.add_event("event", build_attributes(2))
            span.set_status(StatusCode.ERROR if number % 3 else StatusCode.OK)
            with tracer.start_as_current_span("child"):
                pass
        links = [Link(span.get_span_context(), {"why": "the one before"})]
    provider.shutdown()


def send_logs(exporter: Any) -> None:
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = logging.getLogger("sdk-client")
    logger.propagate = False
    logger.addHandler(LoggingHandler(logger_provider=provider))
    for number in range(20):
        logger.warning("line %d ü", number, extra={"number": number, "texts": ["a", "b"]})
    provider.shutdown()


def send_metrics(exporter: Any) -> None:
    reader = PeriodicExportingMetricReader(exporter)
    provider = MeterProvider([reader], resource=RESOURCE)
    meter = provider.get_meter("sdk-client")
    counter = meter.create_counter("counter", unit="{item}", description="items")
    up_down = meter.create_up_down_counter("up-down")
    histogram = meter.create_histogram("histogram", unit="s")
    for number in range(50):
        attributes = build_attributes(number % 3)
        counter.add(number, attributes)
        up_down.add(-1.5, attributes)
        histogram.record(number / 7, attributes)
    provider.shutdown()


if __name__ == "__main__":
    main()
