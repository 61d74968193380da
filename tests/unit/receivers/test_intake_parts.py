# The small parts of the receivers: addresses, tokens, TLS settings, limits, metric names.
from pathlib import Path

import pytest

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.secret import Secret
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.auth import BearerToken, load_token
from otel_llmprism.receivers.limits import Gate, IntakeLimits
from otel_llmprism.receivers.listen_address import (
    ListenAddress,
    ListenError,
    bind_socket,
    parse_listen_address,
)
from otel_llmprism.receivers.otlp_http import OtlpHttpConfig
from otel_llmprism.receivers.tls import ServerTlsConfig, build_server_credentials, build_ssl_context
from otel_llmprism.service.prometheus_text import CountersCollector, to_prometheus_name


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:4317", "127.0.0.1", 4317, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:4317", "::1", 4317, True),
        ("0.0.0.0:4317", "0.0.0.0", 4317, False),
        ("collector.example:65535", "collector.example", 65535, False),
    ],
)
def test_listen_addresses_are_read(text: str, host: str, port: int, is_loopback: bool) -> None:
    address = parse_listen_address(text)
    assert address == ListenAddress(host, port)
    assert str(address) == text
    assert address.is_loopback is is_loopback


@pytest.mark.parametrize(
    "text", ["", "4317", ":4317", "host:", "host:http", "host:65536", "host:-1", "::1:4317"]
)
def test_bad_listen_address_is_an_error_that_shows_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:4317|\[::1\]:4317"):
        parse_listen_address(text)


def test_address_of_another_machine_is_one_clear_error() -> None:
    with pytest.raises(ListenError, match=r"choose 127\.0\.0\.1 or 0\.0\.0\.0"):
        bind_socket(ListenAddress("192.0.2.1", 0))


def test_token_allows_only_itself() -> None:
    token = BearerToken(Secret("abc"))
    assert token.allows(b"Bearer abc")
    assert token.allows(b"  bearer   abc ")
    for sent in (b"", b"abc", b"Bearer", b"Bearer ab", b"Bearer abcd", b"Basic abc", b"Bearer \xff\xfe"):
        assert not token.allows(sent)


def test_unusable_token_file_is_one_clear_error(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text(" \n")
    binary.write_bytes(b"\xff")
    for path, why in ((empty, "is empty"), (binary, "ASCII"), (tmp_path / "none", "cannot read")):
        with pytest.raises(ConfigError, match=why):
            load_token(str(path))
    assert load_token("") is None


def test_half_a_tls_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match="belong together"):
        ServerTlsConfig(cert_file="a.pem")
    with pytest.raises(ConfigError, match="client_ca_file needs"):
        ServerTlsConfig(client_ca_file="ca.pem")
    assert build_ssl_context(ServerTlsConfig()) is None
    assert build_server_credentials(ServerTlsConfig()) is None


def test_limits_that_admit_nothing_are_refused() -> None:
    for limits in ({"max_request_bytes": 0}, {"max_concurrent": 0}, {"receive_timeout_s": 0}):
        with pytest.raises(ValueError, match="limits: "):
            IntakeLimits(**limits)


def test_json_limit_that_admits_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_json_bytes must be at least 1"):
        OtlpHttpConfig(max_json_bytes=0)


def test_gate_lets_in_as_many_as_it_holds() -> None:
    gate = Gate(2)
    assert [gate.try_enter() for _ in range(3)] == [True, True, False]
    gate.leave()
    assert gate.try_enter()


@pytest.mark.parametrize(
    ("name", "unit", "expected"),
    [
        ("llmprism.lost", "{record}", "llmprism_lost"),
        ("llmprism.queue.oldest_age", "s", "llmprism_queue_oldest_age_seconds"),
        ("llmprism.export.bytes", "By", "llmprism_export_bytes"),
        ("llmprism.engine.kv_usage", "{ratio}", "llmprism_engine_kv_usage"),
    ],
)
def test_prometheus_names_carry_the_unit_in_words(name: str, unit: str, expected: str) -> None:
    assert to_prometheus_name(name, unit) == expected


def test_series_with_different_labels_form_one_family() -> None:
    counters = Counters()
    counters.add("llmprism.lost", 1, stage="a")
    counters.add("llmprism.lost", 2, stage="b", cause="c")
    counters.set("llmprism.queue.bytes", 5)
    lost, queue = CountersCollector(counters, {"llmprism.queue.bytes": "By"}).collect()
    assert (lost.name, lost.type) == ("llmprism_lost", "counter")
    assert [(sample.labels, sample.value) for sample in lost.samples] == [
        ({"cause": "c", "stage": "b"}, 2),
        ({"cause": "", "stage": "a"}, 1),
    ]
    assert (queue.name, queue.type, queue.samples[0].value) == ("llmprism_queue_bytes", "gauge", 5)
