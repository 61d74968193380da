# Where an OTLP client sends and how. Endpoint syntax of the outside contract: `http://`, `https://` are
# OTLP/HTTP; `grpc://`, `grpcs://` and a bare host:port are gRPC.
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.secret import Secret

DEFAULT_TIMEOUT_S = 10.0
_DEFAULT_PORTS = {"grpc": 4317, "grpcs": 4317, "http": 80, "https": 443}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"  # OTLP/HTTP only


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTlsConfig:
    """PEM files; empty means the platform's roots, no client certificate."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpClientConfig:
    endpoint: str = "grpc://127.0.0.1:4317"
    headers: Mapping[str, Secret] = field(default_factory=dict)
    compression: Compression = Compression.NONE
    timeout_s: float = DEFAULT_TIMEOUT_S
    tls: ClientTlsConfig = field(default_factory=ClientTlsConfig)
    url_path: str = ""  # OTLP/HTTP: used as it is; empty appends /v1/<signal> to the endpoint's path


@dataclass(frozen=True, slots=True)
class Endpoint:
    is_grpc: bool
    is_secure: bool
    host: str
    port: int
    path: str  # OTLP/HTTP: without trailing slash

    @property
    def authority(self) -> str:
        """host:port, brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Read an endpoint; raises ConfigError that names the syntax."""
    scheme, _, rest = text.strip().rpartition("://")
    scheme = scheme.lower() or "grpc"
    if scheme not in _DEFAULT_PORTS:
        raise _endpoint_error(text, f"unknown scheme {scheme!r}")
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _endpoint_error(text, str(error)) from error
    if not host:
        raise _endpoint_error(text, "no host")
    if parts.username is not None or parts.query or parts.fragment:
        raise _endpoint_error(text, "user, query and fragment are not allowed; put credentials in `headers`")
    is_grpc = scheme.startswith("grpc")
    path = parts.path.rstrip("/")
    if is_grpc and path:
        raise _endpoint_error(text, "a gRPC endpoint has no path")
    return Endpoint(is_grpc, scheme.endswith("s"), host, port or _DEFAULT_PORTS[scheme], path)


def check_client_config(config: OtlpClientConfig) -> Endpoint:
    """Return the endpoint of a configuration that can work; raises ConfigError with the mend."""
    endpoint = parse_endpoint(config.endpoint)
    if config.timeout_s <= 0:
        raise ConfigError(f"timeout of {config.endpoint} must be above 0, not {config.timeout_s}")
    if endpoint.is_grpc and config.compression is Compression.ZSTD:
        raise ConfigError("compression zstd works over OTLP/HTTP only: use gzip, or an http:// endpoint")
    if not endpoint.is_secure and config.tls != ClientTlsConfig():
        secure = "grpcs://" if endpoint.is_grpc else "https://"
        raise ConfigError(f"tls is set but {config.endpoint} is not encrypted: write {secure}...")
    if bool(config.tls.cert_file) != bool(config.tls.key_file):
        raise ConfigError("tls: cert_file and key_file go together: set both or neither")
    for name, value in config.headers.items():
        if not _HEADER_NAME.match(name) or not _is_header_value(value.reveal()):
            raise ConfigError(f"header {name!r} has characters that a header may not have")
    return endpoint


def _is_header_value(text: str) -> bool:
    return all(" " <= c <= "~" for c in text)


def _endpoint_error(text: str, why: str) -> ConfigError:
    # The host part alone is shown: what stands before an @ may be a password.
    shown = text.rpartition("@")[2]
    return ConfigError(
        f"endpoint {shown!r}: {why}; write host:port, grpc://, grpcs://, http:// or https://host[:port]"
    )
