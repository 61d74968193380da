# CLIENT spans through opentelemetry-sdk and its OTLP exporter (gRPC or HTTP as OTEL_* say).
import os
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_llmprism.semconv import request as names
from otel_llmprism.testing.mini_engine.client_spans import ClientTracing


@dataclass(slots=True)
class SdkSpan:
    span: trace.Span
    traceparent: str

    def end(self, finish_reason: str) -> None:
        self.span.set_attribute(names.GEN_AI_RESPONSE_FINISH_REASONS, [finish_reason])
        self.span.end()


def build_sdk_tracing(sampled_share: float) -> ClientTracing:
    """Return a tracer of its own provider; nothing global is set."""
    resource = Resource.create({"service.name": os.environ.get("MINI_ENGINE_CLIENT_NAME", "mini-client")})
    provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(sampled_share)))
    exporter = _build_exporter()
    if exporter is not None:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("otel_llmprism.testing.mini_engine")

    def begin_span(_request_id: str) -> SdkSpan:
        attributes = {names.GEN_AI_OPERATION_NAME: "text_completion", names.GEN_AI_PROVIDER_NAME: "mini"}
        span = tracer.start_span("text_completion mini", kind=SpanKind.CLIENT, attributes=attributes)
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
        return SdkSpan(span, carrier["traceparent"])

    return ClientTracing(begin_span, provider.shutdown)


def _build_exporter() -> SpanExporter | None:
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return None
    default = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    if os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", default).startswith("http"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter as HttpExporter,
        )

        return HttpExporter()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter as GrpcExporter,
    )

    return GrpcExporter()
