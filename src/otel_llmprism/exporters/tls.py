# PEM files -> what gRPC and OTLP/HTTP clients want for TLS and mTLS. Opens no connection.
import ssl
from pathlib import Path

import grpc

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.exporters.otlp_client_config import ClientTlsConfig


def build_channel_credentials(config: ClientTlsConfig) -> grpc.ChannelCredentials:
    """Return gRPC credentials; raises ConfigError on unusable files."""
    # gRPC takes unusable files in silence and fails every handshake; ssl says what is wrong with them.
    build_ssl_context(config)
    return grpc.ssl_channel_credentials(
        root_certificates=_read_pem(config.ca_file),
        private_key=_read_pem(config.key_file),
        certificate_chain=_read_pem(config.cert_file),
    )


def build_ssl_context(config: ClientTlsConfig) -> ssl.SSLContext:
    """Return a verifying client context (TLS 1.2 and above); raises ConfigError on unusable files."""
    for name in (config.ca_file, config.cert_file, config.key_file):
        _read_pem(name)
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if config.cert_file:
            context.load_cert_chain(config.cert_file, config.key_file)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"tls: these PEM files do not fit together: {error}") from error
    return context


def _read_pem(name: str) -> bytes | None:
    if not name:
        return None
    try:
        text = Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"tls: cannot read {name}: {error.strerror}; check path and permissions") from error
    if b"-----BEGIN " not in text:
        raise ConfigError(f"tls: {name} is no PEM file (no BEGIN line)")
    return text
