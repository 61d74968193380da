# An HTTP response of an OTLP backend -> SendResult, as the OTLP specification says. No sockets.
import email.utils
from dataclasses import dataclass

from google.rpc import status_pb2

from otel_llmprism.exporters.otlp_client_result import (
    DELIVERED,
    SendResult,
    SendStatus,
    read_success,
    shorten_message,
)
from otel_llmprism.model.signals import Signal

_RETRYABLE = frozenset({429, 502, 503, 504})
_PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    content_type: str
    retry_after: str
    location: str
    body: bytes


def classify_answer(signal: Signal, answer: HttpAnswer, now_s: float) -> SendResult:
    """Read an answer; `now_s` (real time) turns a Retry-After date into seconds."""
    is_protobuf = answer.content_type.partition(";")[0].strip().lower() == _PROTOBUF
    if 200 <= answer.status < 300:
        return read_success(signal, answer.body) if is_protobuf else DELIVERED
    message = shorten_message(f"HTTP {answer.status}: {_read_error_text(answer, is_protobuf)}")
    if answer.status in _RETRYABLE:
        return SendResult(
            SendStatus.RETRYABLE, message, retry_after_s=read_retry_after(answer.retry_after, now_s)
        )
    if answer.status == 413:
        return SendResult(SendStatus.TOO_LARGE, message)
    return SendResult(SendStatus.PERMANENT, message, is_missing_service=answer.status == 404)


def read_retry_after(text: str, now_s: float) -> float | None:
    """Return the seconds of a Retry-After header in either form; None when absent or unreadable."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now_s)
    except (ValueError, OverflowError):
        return None


def _read_error_text(answer: HttpAnswer, is_protobuf: bool) -> str:
    if answer.location:
        return f"redirects are not followed; set the endpoint to {answer.location}"
    if is_protobuf:
        try:
            return str(status_pb2.Status.FromString(answer.body).message)
        except Exception:  # noqa: BLE001 - protobuf has its own error tree; the status line says enough
            return ""
    return answer.body.decode("utf-8", "replace")
