# What an OTLP server says: Export*ServiceResponse on success, google.rpc.Status with a RetryInfo on
# refusal, as protobuf or JSON. Knows no transport beyond its status numbers.
import json
from dataclasses import dataclass
from enum import Enum

from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_llmprism.model.signals import Signal

_REJECTED = {
    Signal.TRACES: "rejectedSpans",
    Signal.LOGS: "rejectedLogRecords",
    Signal.METRICS: "rejectedDataPoints",
}


class Reply(Enum):
    """The reply with its google.rpc code and HTTP status."""

    OK = (0, 200)
    MALFORMED = (3, 400)
    UNAUTHENTICATED = (16, 401)
    NO_SUCH_PATH = (5, 404)
    WRONG_METHOD = (12, 405)
    TOO_SLOW = (4, 408)
    TOO_LARGE = (8, 413)
    WRONG_CONTENT = (3, 415)
    BUSY = (8, 429)
    UNAVAILABLE = (14, 503)

    @property
    def grpc_code(self) -> int:
        return self.value[0]

    @property
    def http_status(self) -> int:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Answer:
    reply: Reply
    message: str = ""
    rejected_count: int = 0  # with OK: a partial success
    retry_after_s: float = 0.0  # above 0: the client may send again after it


OK_ANSWER = Answer(Reply.OK)


def encode_response(signal: Signal, answer: Answer) -> bytes:
    """Return the Export*ServiceResponse of an OK answer; nothing at all when nothing was rejected."""
    if not answer.rejected_count and not answer.message:
        return b""
    if signal is Signal.TRACES:
        traces = ExportTraceServiceResponse()
        traces.partial_success.rejected_spans = answer.rejected_count
        traces.partial_success.error_message = answer.message
        return traces.SerializeToString()
    if signal is Signal.LOGS:
        logs = ExportLogsServiceResponse()
        logs.partial_success.rejected_log_records = answer.rejected_count
        logs.partial_success.error_message = answer.message
        return logs.SerializeToString()
    metrics = ExportMetricsServiceResponse()
    metrics.partial_success.rejected_data_points = answer.rejected_count
    metrics.partial_success.error_message = answer.message
    return metrics.SerializeToString()


def encode_response_json(signal: Signal, answer: Answer) -> bytes:
    """Return the same response in the JSON of OTLP."""
    if not answer.rejected_count and not answer.message:
        return b"{}"
    count = {_REJECTED[signal]: str(answer.rejected_count)}  # 64-bit numbers are strings there
    return json.dumps({"partialSuccess": {**count, "errorMessage": answer.message}}).encode()


def encode_status(answer: Answer) -> bytes:
    """Return the google.rpc.Status of a refusal, with RetryInfo when the client may come again."""
    status = status_pb2.Status(code=answer.reply.grpc_code, message=answer.message)
    if answer.retry_after_s > 0:
        delay = Duration()
        delay.FromNanoseconds(round(answer.retry_after_s * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return bytes(status.SerializeToString())


def encode_status_json(answer: Answer) -> bytes:
    """Return the same Status as JSON; the delay is in the Retry-After header."""
    return json.dumps({"code": answer.reply.grpc_code, "message": answer.message}).encode()
