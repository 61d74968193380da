# PEM files -> what gRPC and HTTP servers want for TLS and mTLS, checked before anything listens.
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from otel_llmprism.config.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTlsConfig:
    """PEM files; no cert_file means no TLS; a client_ca_file makes client certificates obligatory."""

    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""

    def __post_init__(self) -> None:
        """Refuse half a configuration."""
        if bool(self.cert_file) != bool(self.key_file):
            raise ConfigError("tls: cert_file and key_file belong together; give both or none")
        if self.client_ca_file and not self.cert_file:
            raise ConfigError("tls: client_ca_file needs cert_file and key_file too")

    @property
    def is_on(self) -> bool:
        return bool(self.cert_file)


def build_ssl_context(config: ServerTlsConfig) -> ssl.SSLContext | None:
    """Return a server context (TLS 1.2 and above), None without TLS; raises ConfigError."""
    if not config.is_on:
        return None
    for name in (config.cert_file, config.key_file, config.client_ca_file):
        _read_pem(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password makes an encrypted key an error instead of a question on the terminal.
        context.load_cert_chain(config.cert_file, config.key_file, password="")
    except (ssl.SSLError, ValueError) as error:
        pair = f"{config.cert_file} and {config.key_file}"
        raise ConfigError(f"tls: {pair} are no certificate with its unencrypted key: {error}") from error
    if config.client_ca_file:
        _require_client_certificates(context, config.client_ca_file)
    return context


def build_server_credentials(config: ServerTlsConfig) -> grpc.ServerCredentials | None:
    """Return gRPC credentials, None without TLS; raises ConfigError."""
    # gRPC takes unusable files in silence and fails every handshake; ssl says what is wrong with them.
    if build_ssl_context(config) is None:
        return None
    pair = (_read_pem(config.key_file), _read_pem(config.cert_file))
    client_ca = _read_pem(config.client_ca_file)
    return grpc.ssl_server_credentials(
        [pair], root_certificates=client_ca, require_client_auth=client_ca is not None
    )


def _require_client_certificates(context: ssl.SSLContext, client_ca_file: str) -> None:
    try:
        context.load_verify_locations(client_ca_file)
    except ssl.SSLError as error:
        raise ConfigError(f"tls: {client_ca_file} holds no usable CA certificate: {error}") from error
    context.verify_mode = ssl.CERT_REQUIRED


def _read_pem(name: str) -> bytes | None:
    if not name:
        return None
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"tls: cannot read {name}: {error.strerror}; check path and owner") from error
