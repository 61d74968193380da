# Spans that we build ourselves -> one ExportTraceServiceRequest. Pure; what is in a span is said by
# step_spans.py and request_spans.py.
from collections.abc import Iterable

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.otlp_attributes import Attributes, build_scope, to_resource

SCOPE = "otel_llmprism"
# Span.flags: W3C sampled; bit 8 says that bit 9, the parent is remote, means something.
SAMPLED, IS_REMOTE_KNOWN, IS_REMOTE = 0x001, 0x100, 0x200


def encode_spans(resource: Attributes, spans: Iterable[Span], version: str = "") -> bytes:
    """Return one request with `spans` under our scope."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.CopyFrom(to_resource(resource))
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.CopyFrom(build_scope(SCOPE, version))
    scope_spans.spans.extend(spans)
    encoded: bytes = request.SerializeToString()
    return encoded
