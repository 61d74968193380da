# The user's file for the processor, as one tree of frozen dataclasses in the Collector's style; built from
# the Configs of the components. A mapping comes in; the tree or one ConfigError goes out.
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from otel_llmprism.config.convert import convert_mapping
from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.load import load_mapping
from otel_llmprism.config.schema import build_schema
from otel_llmprism.config.secret import Secret
from otel_llmprism.exporters.otlp_client_config import ClientTlsConfig, Compression, parse_endpoint
from otel_llmprism.exporters.retry import RetryConfig
from otel_llmprism.exporters.sink import InFlightConfig
from otel_llmprism.native.log_frame import CURRENT_VERSION
from otel_llmprism.pipeline.ingress_config import MIB, Durability
from otel_llmprism.receivers.otlp_grpc import OtlpGrpcConfig
from otel_llmprism.receivers.otlp_http import OtlpHttpConfig
from otel_llmprism.reconstruct.stamp import StampConfig
from otel_llmprism.service.control_book import ControlConfig
from otel_llmprism.service.health import HealthConfig
from otel_llmprism.service.sentinel.config import SentinelConfig

# The outside contract writes these at the top level; they are keys of `service`.
_SHORT_FORMS = ("mode", "health", "durability", "ledger", "log", "queue", "shutdown_timeout")


class Mode(StrEnum):
    INLINE = "inline"  # on the path: everything goes on
    BESIDE = "beside"  # gets a copy: only derived signals go on


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolsConfig:
    """Left out: both on loopback. Given: only those that are named."""

    grpc: OtlpGrpcConfig | None = None
    http: OtlpHttpConfig | None = None


def _build_default_protocols() -> ProtocolsConfig:
    return ProtocolsConfig(grpc=OtlpGrpcConfig(), http=OtlpHttpConfig())


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpReceiverConfig:
    protocols: ProtocolsConfig = field(default_factory=_build_default_protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiversConfig:
    otlp: OtlpReceiverConfig = field(default_factory=OtlpReceiverConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldSettings:
    """Spans with these names wait `duration`, so that a stage can still add to them; all others pass."""

    span_names: tuple[str, ...] = ()
    duration_s: float = 2.0
    max_bytes: int = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorsConfig:
    """Hold and stamp only in mode inline: beside changes nothing that passes elsewhere."""

    hold: HoldSettings = field(default_factory=HoldSettings)
    sentinel: SentinelConfig = field(default_factory=SentinelConfig)
    stamp: StampConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpExporterConfig:
    """An empty endpoint: everything about the client comes from OTEL_EXPORTER_OTLP_*."""

    endpoint: str = ""
    headers: Mapping[str, Secret] = field(default_factory=dict)
    compression: Compression = Compression.NONE
    timeout_s: float = 10.0
    tls: ClientTlsConfig = field(default_factory=ClientTlsConfig)
    retry: RetryConfig = field(default_factory=RetryConfig)
    in_flight: InFlightConfig = field(default_factory=InFlightConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportersConfig:
    otlp: OtlpExporterConfig = field(default_factory=OtlpExporterConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    directory: Path = Path("~/.local/state/otel-llmprism/processor")
    max_bytes: int = 1024 * MIB
    segment_bytes: int = 0  # 0: chosen from max_bytes
    replay_metrics_max_age_s: float = 300.0
    format_version: int = CURRENT_VERSION  # one below: before going back to the release before


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    max_bytes: int = 64 * MIB
    max_requests: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    forward: bool = False  # inline: pass ledger records on instead of consuming them


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    log_level: LogLevel = LogLevel.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    mode: Mode = Mode.INLINE
    durability: Durability = Durability.PROCESS
    log: LogSettings = field(default_factory=LogSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    health: HealthConfig = field(default_factory=HealthConfig)
    control: ControlConfig = field(default_factory=ControlConfig)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    shutdown_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorConfig:
    receivers: ReceiversConfig = field(default_factory=ReceiversConfig)
    processors: ProcessorsConfig = field(default_factory=ProcessorsConfig)
    exporters: ExportersConfig = field(default_factory=ExportersConfig)
    service: ServiceConfig = field(default_factory=ServiceConfig)


def load_processor_config(path: Path, environment: Mapping[str, str]) -> ProcessorConfig:
    """Return the configuration of `path`; raises ConfigError with file, key and the mend."""
    config = read_processor_config(load_mapping(path, environment), str(path))
    check_receives(config, str(path))
    check_no_loop(config, str(path))
    return config


def read_processor_config(mapping: Mapping[str, Any], source: str) -> ProcessorConfig:
    """Return the tree of a mapping; `source` names it in errors."""
    return convert_mapping(unfold_short_forms(mapping, source), ProcessorConfig, source)


def build_processor_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file, the short forms of the top level included."""
    schema = build_schema(ProcessorConfig, "otel-llmprism processor")
    service = schema["properties"]["service"]["properties"]
    health = {"anyOf": [{"type": "string"}, service["health"]]}
    schema["properties"] |= {key: service[key] for key in _SHORT_FORMS} | {"health": health}
    service["health"] = health
    return schema


def unfold_short_forms(mapping: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return `mapping` with what may stand at the top level put into `service`."""
    unfolded = dict(mapping)
    service = unfolded.get("service") or {}
    if not isinstance(service, Mapping):
        return unfolded
    service = dict(service)
    for key in _SHORT_FORMS:
        if key not in unfolded:
            continue
        if key in service:
            raise ConfigError(f"{source}: {key} is given twice, also as service.{key}: keep one of them")
        service[key] = unfolded.pop(key)
    if isinstance(service.get("health"), str):
        service["health"] = {"endpoint": service["health"]}
    return {**unfolded, "service": service}


def check_receives(config: ProcessorConfig, source: str) -> None:
    """Refuse a processor that nothing can reach."""
    protocols = config.receivers.otlp.protocols
    if protocols.grpc is None and protocols.http is None:
        raise ConfigError(
            f"{source}: receivers.otlp.protocols: neither grpc nor http, so nothing would come in; "
            "name one of them, or leave protocols out for both"
        )


def check_no_loop(config: ProcessorConfig, source: str) -> None:
    """Refuse an exporter that sends to our own receiver: data would circle for ever."""
    if not config.exporters.otlp.endpoint:
        return
    target = parse_endpoint(config.exporters.otlp.endpoint)
    protocols = config.receivers.otlp.protocols
    own = {receiver.endpoint for receiver in (protocols.grpc, protocols.http) if receiver is not None}
    for endpoint in own:
        host, _, port = endpoint.rpartition(":")
        is_local = target.host in ("127.0.0.1", "localhost", "::1", host.strip("[]"))
        if is_local and port == str(target.port):
            raise ConfigError(
                f"{source}: exporters.otlp.endpoint {config.exporters.otlp.endpoint} is our own receiver; "
                "name the backend, or move receivers.otlp.protocols to another port"
            )
