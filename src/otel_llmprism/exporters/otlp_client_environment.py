# The standard OTEL_EXPORTER_OTLP_* variables -> one client configuration a signal. The environment comes
# in as a mapping; nothing is read from the process.
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.secret import Secret
from otel_llmprism.exporters.otlp_client_config import (
    DEFAULT_TIMEOUT_S,
    ClientTlsConfig,
    Compression,
    OtlpClientConfig,
)
from otel_llmprism.model.signals import Signal

_PREFIX = "OTEL_EXPORTER_OTLP_"
_HTTP_PORT = 4318
_PROTOCOLS = ("grpc", "http/protobuf")
_MAX_TIMEOUT_MS = 86_400_000
# The specification counts milliseconds, the Python SDK seconds; nobody means a timeout under 100 ms.
_SECONDS_BELOW = 100


def read_client_configs(environment: Mapping[str, str]) -> dict[Signal, OtlpClientConfig]:
    """Return the configuration of each signal; raises ConfigError that names the variable."""
    return {signal: _read_config(_Variables(environment, signal)) for signal in Signal}


class _Variables:
    """One signal's view: its own variable wins over the general one; empty counts as unset."""

    def __init__(self, environment: Mapping[str, str], signal: Signal) -> None:
        self._environment = environment
        self.signal = signal

    def read(self, name: str) -> str:
        return self.read_own(name) or self.read_general(name)

    def read_own(self, name: str) -> str:
        return self._environment.get(f"{_PREFIX}{self.signal.name}_{name}", "").strip()

    def read_general(self, name: str) -> str:
        return self._environment.get(f"{_PREFIX}{name}", "").strip()

    def name_of(self, name: str) -> str:
        own = f"{_PREFIX}{self.signal.name}_{name}"
        return own if self.read_own(name) else f"{_PREFIX}{name}"


def _read_config(variables: _Variables) -> OtlpClientConfig:
    endpoint, url_path = _read_endpoint(variables)
    is_secure = endpoint.startswith(("https://", "grpcs://"))
    return OtlpClientConfig(
        endpoint=endpoint,
        url_path=url_path,
        headers=_read_headers(variables),
        compression=_read_compression(variables),
        timeout_s=_read_timeout(variables),
        # Certificates beside an unencrypted endpoint are common in shared environments: not an error.
        tls=_read_tls(variables) if is_secure else ClientTlsConfig(),
    )


def _read_endpoint(variables: _Variables) -> tuple[str, str]:
    own, general = variables.read_own("ENDPOINT"), variables.read_general("ENDPOINT")
    text = own or general
    protocol = variables.read("PROTOCOL").lower() or _guess_protocol(text)
    if protocol == "http/json":
        raise ConfigError(
            f"{variables.name_of('PROTOCOL')}: http/json is not sent; use http/protobuf or grpc"
        )
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"{variables.name_of('PROTOCOL')}: {protocol!r} is none of {', '.join(_PROTOCOLS)}")
    if protocol == "grpc":
        return _to_grpc_endpoint(variables, text), ""
    if not text:
        return f"http://127.0.0.1:{_HTTP_PORT}", ""
    if "://" not in text:
        text = f"http://{text}"
    # The signal's own URL is used as it is; the general one is a base.
    return text, (urlsplit(text).path or "/") if own else ""


def _guess_protocol(endpoint: str) -> str:
    """Without a protocol: gRPC, as the Python SDK does, unless port or path can only mean HTTP."""
    if endpoint.startswith(("grpc://", "grpcs://")):
        return "grpc"
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
        is_http = parts.port == _HTTP_PORT or parts.path.strip("/") != ""
    except ValueError:
        return "grpc"  # read again, and refused with its reason, when the endpoint is parsed
    return "http/protobuf" if is_http else "grpc"


def _to_grpc_endpoint(variables: _Variables, text: str) -> str:
    scheme, _, rest = (text or "http://127.0.0.1:4317").rpartition("://")
    if scheme:
        is_secure = scheme.lower() in ("https", "grpcs")
    else:
        is_secure = variables.read("INSECURE").lower() != "true"
    # gRPC has no path; SDKs ignore one here, so a shared variable works for both protocols.
    return f"{'grpcs' if is_secure else 'grpc'}://{rest.partition('/')[0]}"


def _read_headers(variables: _Variables) -> dict[str, Secret]:
    headers: dict[str, Secret] = {}
    for piece in variables.read("HEADERS").split(","):
        name, equals, value = piece.partition("=")
        if not piece.strip():
            continue
        if not equals or not name.strip():
            # The piece may hold a secret, so it is not shown.
            raise ConfigError(f"{variables.name_of('HEADERS')}: write key=value,key=value (URL-encoded)")
        headers[unquote(name.strip()).lower()] = Secret(unquote(value.strip()))
    return headers


def _read_compression(variables: _Variables) -> Compression:
    text = variables.read("COMPRESSION").lower() or "none"
    try:
        return Compression(text)
    except ValueError:
        known = ", ".join(Compression)
        raise ConfigError(f"{variables.name_of('COMPRESSION')}: {text!r} is none of {known}") from None


def _read_timeout(variables: _Variables) -> float:
    """Milliseconds by the specification; below 100 seconds, as the Python SDK reads it."""
    text = variables.read("TIMEOUT")
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < _MAX_TIMEOUT_MS:
        raise ConfigError(f"{variables.name_of('TIMEOUT')}: {text!r} is no positive number of milliseconds")
    return number if number < _SECONDS_BELOW else number / 1000


def _read_tls(variables: _Variables) -> ClientTlsConfig:
    return ClientTlsConfig(
        ca_file=variables.read("CERTIFICATE"),
        cert_file=variables.read("CLIENT_CERTIFICATE"),
        key_file=variables.read("CLIENT_KEY"),
    )
