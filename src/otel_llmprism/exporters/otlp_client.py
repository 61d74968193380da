# One client for all three signals: picks transport and settings for each, sends raw request bytes and
# says what became of them. No retry, no queue, no thread of its own.
from collections.abc import Mapping

from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig, parse_endpoint
from otel_llmprism.exporters.otlp_client_result import SendResult, Transport
from otel_llmprism.model.signals import Signal


class OtlpClient:
    """Thread-safe. Raises ConfigError at once for settings that can never work; opens nothing yet."""

    def __init__(
        self, config: OtlpClientConfig, per_signal: Mapping[Signal, OtlpClientConfig] | None = None
    ) -> None:
        """Send everything by `config`, but the signals in `per_signal` by their own."""
        shared: list[tuple[OtlpClientConfig, Transport]] = []
        self._transports: dict[Signal, Transport] = {}
        self._timeouts_s: dict[Signal, float] = {}
        for signal in Signal:
            own = (per_signal or {}).get(signal, config)
            self._transports[signal] = _share_transport(shared, own)
            self._timeouts_s[signal] = own.timeout_s
        self._all = [transport for _, transport in shared]

    def send(self, signal: Signal, payload: bytes, timeout_s: float | None = None) -> SendResult:
        """Send one export request and wait at most `timeout_s` (None: the configured timeout)."""
        limit_s = self._timeouts_s[signal] if timeout_s is None else timeout_s
        return self._transports[signal].send(signal, payload, limit_s)

    def close(self) -> None:
        """End calls in flight (they return RETRYABLE) and release connections."""
        for transport in self._all:
            transport.close()


def build_transport(config: OtlpClientConfig) -> Transport:
    """Return the transport that the endpoint's scheme asks for."""
    # Imported here so that a gRPC-only process does not load ssl and http, nor the other way round.
    if parse_endpoint(config.endpoint).is_grpc:
        from otel_llmprism.exporters.otlp_grpc import GrpcTransport  # noqa: PLC0415 - see above

        return GrpcTransport(config)
    from otel_llmprism.exporters.otlp_http import HttpTransport  # noqa: PLC0415 - see above

    return HttpTransport(config)


def _share_transport(shared: list[tuple[OtlpClientConfig, Transport]], config: OtlpClientConfig) -> Transport:
    for known, transport in shared:
        if known == config:
            return transport
    transport = build_transport(config)
    shared.append((config, transport))
    return transport
