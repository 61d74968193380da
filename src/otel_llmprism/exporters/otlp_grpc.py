# OTLP/gRPC over raw bytes: the payload leaves as it came, no message class is built. Blocking calls:
# each costs less processor time than a future (docs/adr/0050). Knows neither queue nor retry.
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from otel_llmprism import __version__
from otel_llmprism.exporters.otlp_client_config import Compression, OtlpClientConfig, check_client_config
from otel_llmprism.exporters.otlp_client_result import (
    SendResult,
    SendStatus,
    read_success,
    shorten_message,
)
from otel_llmprism.exporters.tls import build_channel_credentials
from otel_llmprism.model.signals import Signal

EXPORT_METHODS = {
    Signal.TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    Signal.LOGS: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    Signal.METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
# The table of the OTLP specification, "OTLP/gRPC Response"; RESOURCE_EXHAUSTED only with RetryInfo.
_RETRYABLE = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_COMPRESSIONS = {Compression.NONE: None, Compression.GZIP: grpc.Compression.Gzip}
_OPTIONS = (
    ("grpc.primary_user_agent", f"otel-llmprism/{__version__}"),
    # gRPC's own retries buffer a copy of every request; ours are above.
    ("grpc.enable_retries", 0),
    # A backend that comes back is seen within seconds (the default grows to two minutes), and one
    # client's backoff does not delay another's.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcTransport:
    def __init__(self, config: OtlpClientConfig) -> None:
        endpoint = check_client_config(config)
        compression = _COMPRESSIONS[config.compression]
        if endpoint.is_secure:
            credentials = build_channel_credentials(config.tls)
            self._channel = grpc.secure_channel(endpoint.authority, credentials, _OPTIONS, compression)
        else:
            self._channel = grpc.insecure_channel(endpoint.authority, _OPTIONS, compression)
        self._metadata = tuple((name.lower(), value.reveal()) for name, value in config.headers.items())
        self._calls: dict[Signal, Any] = {
            signal: self._channel.unary_unary(method) for signal, method in EXPORT_METHODS.items()
        }

    def send(self, signal: Signal, payload: bytes, timeout_s: float) -> SendResult:
        """Send one request and wait; never raises for what the network or the backend does."""
        try:
            response = self._calls[signal](payload, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            return classify_error(error)
        except ValueError as error:  # the channel was closed by another thread
            return SendResult(SendStatus.RETRYABLE, shorten_message(str(error)))
        return read_success(signal, response)

    def close(self) -> None:
        """Cancel what is in flight and release the connection."""
        self._channel.close()


def classify_error(error: grpc.RpcError) -> SendResult:
    """Read a gRPC failure as the OTLP specification says."""
    code, details = error.code(), error.details() or ""
    retry_after_s = _read_retry_info(error)
    message = shorten_message(f"{code.name}: {details}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and retry_after_s is None:
        too_large = _is_too_large(details)
        return SendResult(SendStatus.TOO_LARGE if too_large else SendStatus.PERMANENT, message)
    if code in _RETRYABLE or code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return SendResult(SendStatus.RETRYABLE, message, retry_after_s=retry_after_s)
    is_missing = code is grpc.StatusCode.UNIMPLEMENTED
    return SendResult(SendStatus.PERMANENT, message, is_missing_service=is_missing)


def _is_too_large(details: str) -> bool:
    # gRPC gives every cause of RESOURCE_EXHAUSTED one code; these are the words of C++, Go ("larger than
    # max"), Java and .NET ("exceeds maximum", "exceeds the maximum") for a message over the limit.
    words = details.lower()
    return "message" in words and any(
        phrase in words for phrase in ("larger than max", "exceeds maximum", "exceeds the maximum")
    )


def _read_retry_info(error: grpc.RpcError) -> float | None:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return _read_retry_delay(value)
    return None


def _read_retry_delay(status_bytes: bytes) -> float | None:
    info = error_details_pb2.RetryInfo()
    try:
        for detail in status_pb2.Status.FromString(status_bytes).details:
            if detail.Is(info.DESCRIPTOR):
                detail.Unpack(info)
                delay = info.retry_delay
                return max(0.0, float(delay.seconds + delay.nanos * 1e-9))
    except Exception:  # noqa: BLE001 - a damaged detail (protobuf has its own error tree) is no detail
        return None
    return None
