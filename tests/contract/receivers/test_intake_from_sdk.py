# Spans that OpenTelemetry's own Python SDK exports arrive, over gRPC and HTTP, plain and gzipped.
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_llmprism.testing.ingresses import RecordingIngress


def build_exporter(kind: str, port: int, *, is_gzipped: bool) -> Any:
    if kind == "grpc":
        compression = grpc.Compression.Gzip if is_gzipped else None
        return GrpcSpanExporter(f"127.0.0.1:{port}", insecure=True, compression=compression)
    encoding = Compression.Gzip if is_gzipped else Compression.NoCompression
    return HttpSpanExporter(f"http://127.0.0.1:{port}/v1/traces", compression=encoding)


@pytest.mark.parametrize("is_gzipped", [False, True])
def test_spans_of_the_sdk_arrive(intake: Any, is_gzipped: bool) -> None:
    ingress = RecordingIngress()
    intake.start(ingress)
    provider = TracerProvider(resource=Resource({"service.name": "sdk"}), shutdown_on_exit=False)
    provider.add_span_processor(
        SimpleSpanProcessor(build_exporter(intake.kind, intake.port, is_gzipped=is_gzipped))
    )
    with provider.get_tracer("test").start_as_current_span("work") as span:
        trace_id = span.get_span_context().trace_id
    provider.shutdown()
    assert ingress.wait_for_count(1)
    request = ExportTraceServiceRequest.FromString(ingress.offers[0][1])
    [arrived] = request.resource_spans[0].scope_spans[0].spans
    assert (arrived.name, int.from_bytes(arrived.trace_id)) == ("work", trace_id)
