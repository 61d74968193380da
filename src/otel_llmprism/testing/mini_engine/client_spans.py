# The caller's CLIENT spans, made by the OpenTelemetry SDK as any application would make them. Without
# the SDK there are none and requests arrive without a context.
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class ClientSpan(Protocol):
    traceparent: str

    def end(self, finish_reason: str) -> None: ...


@dataclass(slots=True)
class NoSpan:
    traceparent: str = ""

    def end(self, finish_reason: str) -> None:
        """Nothing was begun."""


@dataclass(frozen=True, slots=True)
class ClientTracing:
    begin_span: Callable[[str], ClientSpan]
    close: Callable[[], None]


def build_client_tracing(sampled_share: float) -> ClientTracing:
    """Set up tracing from the OTEL_* environment, or the empty one when the SDK is absent."""
    try:
        from otel_llmprism.testing.mini_engine.sdk_spans import build_sdk_tracing  # noqa: PLC0415
    except ImportError:
        return ClientTracing(lambda _request_id: NoSpan(), lambda: None)
    return build_sdk_tracing(sampled_share)
