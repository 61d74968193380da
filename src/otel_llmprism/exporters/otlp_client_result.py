# What became of one export request, in the words of the OTLP specification. Knows no transport.
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_llmprism.model.signals import Signal

MAX_MESSAGE_CHARS = 300
# The Collector always sends the (empty) partial_success field.
_PLAIN_SUCCESS = (b"", b"\x0a\x00")


class SendStatus(Enum):
    DELIVERED = "delivered"
    PARTIAL = "partial"  # accepted, but for `rejected_count` records; must not be sent again
    RETRYABLE = "retryable"  # send the same request again, not before `retry_after_s` if given
    TOO_LARGE = "too_large"  # permanent for this size: its halves may pass
    PERMANENT = "permanent"  # will never be accepted


@dataclass(frozen=True, slots=True)
class SendResult:
    status: SendStatus
    message: str = ""  # for people; bounded, one line
    rejected_count: int = 0
    retry_after_s: float | None = None
    is_missing_service: bool = False  # gRPC UNIMPLEMENTED, HTTP 404: nobody takes this signal there


DELIVERED = SendResult(SendStatus.DELIVERED)


class Transport(Protocol):
    """One way to one endpoint. Thread-safe; `close` ends calls in flight as RETRYABLE."""

    def send(self, signal: Signal, payload: bytes, timeout_s: float) -> SendResult: ...

    def close(self) -> None: ...


def read_success(signal: Signal, response: bytes) -> SendResult:
    """Tell full from partial success; a response that does not parse is a success nevertheless."""
    if response in _PLAIN_SUCCESS:
        return DELIVERED
    try:
        rejected_count, message = _read_partial_success(signal, response)
    except ValueError:
        return DELIVERED
    if rejected_count <= 0:
        return SendResult(SendStatus.DELIVERED, shorten_message(message))
    return SendResult(SendStatus.PARTIAL, shorten_message(message), rejected_count)


def shorten_message(text: str) -> str:
    """Make a remote text safe for one log line: one line, printable, bounded."""
    printable = "".join(c if c.isprintable() else " " for c in text[: 2 * MAX_MESSAGE_CHARS])
    return printable if len(printable) <= MAX_MESSAGE_CHARS else printable[:MAX_MESSAGE_CHARS] + "..."


def _read_partial_success(signal: Signal, response: bytes) -> tuple[int, str]:
    # protobuf's DecodeError is no ValueError in every release, hence the one catch-all here.
    try:
        if signal is Signal.TRACES:
            traces = ExportTraceServiceResponse.FromString(response).partial_success
            return traces.rejected_spans, traces.error_message
        if signal is Signal.LOGS:
            logs = ExportLogsServiceResponse.FromString(response).partial_success
            return logs.rejected_log_records, logs.error_message
        metrics = ExportMetricsServiceResponse.FromString(response).partial_success
    except Exception as error:
        raise ValueError("not an OTLP export response") from error
    return metrics.rejected_data_points, metrics.error_message
