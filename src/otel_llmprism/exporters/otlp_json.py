# One export request for traces as OTLP's JSON: ids in hex, as its specification asks, where protobuf's
# own mapping has base64.
import base64
import json
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_ID_KEYS = {"traceId", "spanId", "parentSpanId"}


def format_traces(payload: bytes) -> str:
    """Return the request as one JSON text; raises DecodeError for bytes that are no trace request."""
    request = ExportTraceServiceRequest()
    request.ParseFromString(payload)
    return json.dumps(_write_ids_in_hex(MessageToDict(request, use_integers_for_enums=True)), indent=2)


def _write_ids_in_hex(value: Any) -> Any:
    if isinstance(value, list):
        return [_write_ids_in_hex(item) for item in value]
    if isinstance(value, dict):
        return {
            key: base64.b64decode(item).hex() if key in _ID_KEYS else _write_ids_in_hex(item)
            for key, item in value.items()
        }
    return value
