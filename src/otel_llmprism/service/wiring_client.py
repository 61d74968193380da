# The exporter's section of the file, or the standard OTEL_* variables, -> the OTLP client of the sink.
from collections.abc import Mapping

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig
from otel_llmprism.exporters.otlp_client_environment import read_client_configs
from otel_llmprism.model.signals import Signal
from otel_llmprism.service.settings import OtlpExporterConfig

_ENDPOINT_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    *(f"OTEL_EXPORTER_OTLP_{s.name}_ENDPOINT" for s in Signal),
)


def build_client(config: OtlpExporterConfig, environment: Mapping[str, str]) -> OtlpClient:
    """Return the client; without an endpoint in the file, all of it comes from the environment."""
    if config.endpoint:
        return OtlpClient(
            OtlpClientConfig(
                endpoint=config.endpoint,
                headers=config.headers,
                compression=config.compression,
                timeout_s=config.timeout_s,
                tls=config.tls,
            )
        )
    # The default of the variables would be our own receiver.
    if not any(environment.get(name) for name in _ENDPOINT_VARIABLES):
        raise ConfigError("exporters.otlp.endpoint must be given, or OTEL_EXPORTER_OTLP_ENDPOINT set")
    per_signal = read_client_configs(environment)
    return OtlpClient(per_signal[Signal.TRACES], per_signal)
