# TLS and mTLS of the client, both transports, with throw-away certificates.
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import ClientTlsConfig, OtlpClientConfig
from otel_llmprism.exporters.otlp_client_result import SendStatus
from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.certificates import CertificateFiles, write_certificates
from otel_llmprism.testing.otlp_server import OtlpServer


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return write_certificates(tmp_path_factory.mktemp("tls"))


def build_server(files: CertificateFiles, *, is_mutual: bool) -> OtlpServer:
    key, cert, ca = (Path(name).read_bytes() for name in (files.server_key, files.server_cert, files.ca))
    credentials = grpc.ssl_server_credentials(
        [(key, cert)], root_certificates=ca if is_mutual else None, require_client_auth=is_mutual
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server_cert, files.server_key)
    if is_mutual:
        context.load_verify_locations(files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return OtlpServer(credentials=credentials, ssl_context=context)


@pytest.fixture
def server(files: CertificateFiles) -> Iterator[OtlpServer]:
    with build_server(files, is_mutual=False) as running:
        yield running


@pytest.fixture
def strict_server(files: CertificateFiles) -> Iterator[OtlpServer]:
    with build_server(files, is_mutual=True) as running:
        yield running


def send(endpoint: str, tls: ClientTlsConfig) -> SendStatus:
    client = OtlpClient(OtlpClientConfig(endpoint=endpoint, tls=tls))
    try:
        return client.send(Signal.TRACES, b"payload", timeout_s=5).status
    finally:
        client.close()


@pytest.mark.parametrize("transport", ["grpc_endpoint", "http_endpoint"])
def test_known_authority_is_trusted(server: OtlpServer, files: CertificateFiles, transport: str) -> None:
    assert send(getattr(server, transport), ClientTlsConfig(ca_file=files.ca)) is SendStatus.DELIVERED


@pytest.mark.parametrize("transport", ["grpc_endpoint", "http_endpoint"])
def test_unknown_authority_is_not(server: OtlpServer, transport: str) -> None:
    assert send(getattr(server, transport), ClientTlsConfig()) is SendStatus.RETRYABLE
    assert server.received() == []


@pytest.mark.parametrize("transport", ["grpc_endpoint", "http_endpoint"])
def test_client_certificate_is_shown_when_there_is_one(
    strict_server: OtlpServer, files: CertificateFiles, transport: str
) -> None:
    endpoint = getattr(strict_server, transport)
    with_certificate = ClientTlsConfig(
        ca_file=files.ca, cert_file=files.client_cert, key_file=files.client_key
    )
    assert send(endpoint, ClientTlsConfig(ca_file=files.ca)) is SendStatus.RETRYABLE
    assert send(endpoint, with_certificate) is SendStatus.DELIVERED


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
@pytest.mark.parametrize(
    ("tls", "message"),
    [
        (ClientTlsConfig(ca_file="/does/not/exist"), "cannot read /does/not/exist"),
        (ClientTlsConfig(ca_file=__file__), "is no PEM file"),
    ],
)
def test_unusable_files_are_named(scheme: str, tls: ClientTlsConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OtlpClient(OtlpClientConfig(endpoint=f"{scheme}://127.0.0.1:1", tls=tls))


def test_key_that_is_not_the_certificates_is_refused(files: CertificateFiles) -> None:
    tls = ClientTlsConfig(cert_file=files.client_cert, key_file=files.server_key)
    for scheme in ("https", "grpcs"):
        with pytest.raises(ConfigError, match="do not fit together"):
            OtlpClient(OtlpClientConfig(endpoint=f"{scheme}://127.0.0.1:1", tls=tls))
