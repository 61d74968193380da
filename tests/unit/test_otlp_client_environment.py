# The standard variables, as a mapping, to one client configuration a signal.
import pytest

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.secret import Secret
from otel_llmprism.exporters.otlp_client_config import (
    ClientTlsConfig,
    Compression,
    OtlpClientConfig,
    check_client_config,
    parse_endpoint,
)
from otel_llmprism.exporters.otlp_client_environment import read_client_configs
from otel_llmprism.model.signals import Signal

P = "OTEL_EXPORTER_OTLP_"


def read(**variables: str) -> OtlpClientConfig:
    return read_all(**variables)[Signal.TRACES]


def read_all(**variables: str) -> dict[Signal, OtlpClientConfig]:
    return read_client_configs({P + name: value for name, value in variables.items()})


def test_nothing_set_is_grpc_on_loopback() -> None:
    assert read() == OtlpClientConfig(endpoint="grpc://127.0.0.1:4317")


@pytest.mark.parametrize(
    ("variables", "endpoint", "path"),
    [
        ({"ENDPOINT": "http://c:4317"}, "grpc://c:4317", ""),
        ({"ENDPOINT": "https://c:4317"}, "grpcs://c:4317", ""),
        ({"ENDPOINT": "http://c:4318"}, "http://c:4318", ""),
        ({"ENDPOINT": "http://c:4318/base/"}, "http://c:4318/base/", ""),
        ({"ENDPOINT": "c:4317"}, "grpcs://c:4317", ""),
        ({"ENDPOINT": "c:4317", "INSECURE": "true"}, "grpc://c:4317", ""),
        ({"ENDPOINT": "http://c:4317", "PROTOCOL": "http/protobuf"}, "http://c:4317", ""),
        ({"ENDPOINT": "http://c:4318", "PROTOCOL": "grpc"}, "grpc://c:4318", ""),
        ({"PROTOCOL": "http/protobuf"}, "http://127.0.0.1:4318", ""),
        ({"TRACES_ENDPOINT": "http://c:4318/x/y", "ENDPOINT": "http://d:4318"}, "http://c:4318/x/y", "/x/y"),
        ({"TRACES_ENDPOINT": "http://c:4318"}, "http://c:4318", "/"),
        ({"TRACES_ENDPOINT": "", "ENDPOINT": "grpc://d:1"}, "grpc://d:1", ""),
        ({"TRACES_PROTOCOL": "http/protobuf", "PROTOCOL": "grpc"}, "http://127.0.0.1:4318", ""),
    ],
)
def test_endpoint_and_protocol_are_read_as_sdks_do(
    variables: dict[str, str], endpoint: str, path: str
) -> None:
    config = read(**variables)
    assert (config.endpoint, config.url_path) == (endpoint, path)
    check_client_config(config)


def test_one_signals_variables_leave_the_others_alone() -> None:
    assert read_all(TRACES_ENDPOINT="http://c:4318/x")[Signal.LOGS] == OtlpClientConfig(
        endpoint="grpc://127.0.0.1:4317"
    )


def test_headers_are_url_decoded_and_secret() -> None:
    config = read(HEADERS="Authorization=Bearer%20canary, x-team = blue ,")
    assert config.headers == {"authorization": Secret("Bearer canary"), "x-team": Secret("blue")}
    assert "canary" not in repr(config)


@pytest.mark.parametrize(("text", "seconds"), [("10000", 10.0), ("500", 0.5), ("10", 10.0), ("2.5", 2.5)])
def test_timeout_is_milliseconds_and_small_numbers_are_seconds(text: str, seconds: float) -> None:
    assert read(TIMEOUT=text).timeout_s == seconds


def test_certificates_count_only_where_there_is_encryption() -> None:
    files = {"CERTIFICATE": "ca", "CLIENT_CERTIFICATE": "c", "CLIENT_KEY": "k"}
    tls = ClientTlsConfig(ca_file="ca", cert_file="c", key_file="k")
    assert read(ENDPOINT="https://c:4317", **files).tls == tls
    assert read(ENDPOINT="http://c:4317", **files).tls == ClientTlsConfig()


def test_compression_is_read() -> None:
    assert read(COMPRESSION="gzip").compression is Compression.GZIP


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL: http/json is not sent"),
        ({"TRACES_PROTOCOL": "smoke"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'smoke' is none of"),
        ({"COMPRESSION": "lzw"}, "OTEL_EXPORTER_OTLP_COMPRESSION: 'lzw' is none of"),
        ({"TIMEOUT": "soon"}, "OTEL_EXPORTER_OTLP_TIMEOUT: 'soon'"),
        ({"TIMEOUT": "0"}, "OTEL_EXPORTER_OTLP_TIMEOUT: '0'"),
        ({"HEADERS": "canary"}, "OTEL_EXPORTER_OTLP_HEADERS: write key=value"),
    ],
)
def test_errors_name_the_variable(variables: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**variables)
    assert message in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "is_grpc", "is_secure", "authority", "path"),
    [
        ("localhost:4317", True, False, "localhost:4317", ""),
        ("grpc://h", True, False, "h:4317", ""),
        ("grpcs://h:1", True, True, "h:1", ""),
        ("http://h", False, False, "h:80", ""),
        ("https://h/otlp/", False, True, "h:443", "/otlp"),
        ("[::1]:4317", True, False, "[::1]:4317", ""),
        ("HTTP://h:1", False, False, "h:1", ""),
    ],
)
def test_endpoints_of_the_contract_are_read(
    text: str, is_grpc: bool, is_secure: bool, authority: str, path: str
) -> None:
    endpoint = parse_endpoint(text)
    assert (endpoint.is_grpc, endpoint.is_secure) == (is_grpc, is_secure)
    assert (endpoint.authority, endpoint.path) == (authority, path)


@pytest.mark.parametrize(
    "text",
    ["", "ftp://h:1", "grpc://h:1/path", "h:99999", "http://u:canary@h", "http://h?x=1", "grpc://", "[::1"],
)
def test_other_endpoints_are_refused_with_the_syntax(text: str) -> None:
    with pytest.raises(ConfigError, match="write host:port") as caught:
        parse_endpoint(text)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OtlpClientConfig(compression=Compression.ZSTD), "zstd works over OTLP/HTTP only"),
        (OtlpClientConfig(tls=ClientTlsConfig(ca_file="x")), "write grpcs://"),
        (
            OtlpClientConfig(endpoint="https://h", tls=ClientTlsConfig(cert_file="x")),
            "cert_file and key_file go together",
        ),
        (OtlpClientConfig(headers={"a": Secret("x\r\ny: z")}), "characters that a header may not have"),
        (OtlpClientConfig(headers={"a b": Secret("x")}), "characters that a header may not have"),
        (OtlpClientConfig(timeout_s=0), "timeout"),
    ],
)
def test_settings_that_cannot_work_are_refused(config: OtlpClientConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_client_config(config)
