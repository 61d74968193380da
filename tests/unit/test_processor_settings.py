# The processor's file: shape, short forms, shipped schema.
import json
from pathlib import Path

import pytest

import otel_llmprism.service
from otel_llmprism.config.dump import dump_config
from otel_llmprism.config.errors import ConfigError
from otel_llmprism.native.log_frame import CURRENT_VERSION
from otel_llmprism.pipeline.ingress_config import Durability
from otel_llmprism.service.settings import (
    Mode,
    ProcessorConfig,
    build_processor_schema,
    load_processor_config,
    read_processor_config,
)
from otel_llmprism.service.wiring_feed import to_ingress_config

SHIPPED = Path(otel_llmprism.service.__file__).parent / "processor.schema.json"


def load(tmp_path: Path, text: str) -> ProcessorConfig:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return load_processor_config(path, {"TOKEN": "canary"})


def test_empty_file_listens_on_loopback_and_survives_kill(tmp_path: Path) -> None:
    config = load(tmp_path, "exporters: {otlp: {endpoint: 'backend:4317'}}")
    protocols = config.receivers.otlp.protocols
    assert protocols.grpc is not None
    assert protocols.http is not None
    assert (protocols.grpc.endpoint, protocols.http.endpoint) == ("127.0.0.1:4317", "127.0.0.1:4318")
    assert config.service.durability is Durability.PROCESS
    assert config.service.health.endpoint == "127.0.0.1:13133"
    assert config.service.mode is Mode.INLINE


def test_only_named_protocols_listen(tmp_path: Path) -> None:
    config = load(tmp_path, "receivers: {otlp: {protocols: {grpc: }}}\nexporters: {otlp: {endpoint: 'b:1'}}")
    assert config.receivers.otlp.protocols.grpc is not None
    assert config.receivers.otlp.protocols.http is None


def test_short_forms_of_the_top_level_mean_service(tmp_path: Path) -> None:
    short = load(tmp_path, "mode: beside\nhealth: 127.0.0.1:0\nledger: {forward: true}\ndurability: memory")
    full = load(
        tmp_path,
        "service: {mode: beside, health: {endpoint: '127.0.0.1:0'}, ledger: {forward: true},"
        " durability: memory}",
    )
    assert short == full
    assert short.service.mode is Mode.BESIDE


def test_key_given_in_both_places_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mode is given twice, also as service\.mode"):
        load(tmp_path, "mode: beside\nservice: {mode: inline}")


@pytest.mark.parametrize(
    "text",
    [
        "exporters: {otlp: {endpoint: '127.0.0.1:4317'}}",
        "exporters: {otlp: {endpoint: 'http://localhost:4318'}}",
    ],
)
def test_exporter_that_feeds_its_own_receiver_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="is our own receiver"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "exporters: {otlp: {endpont: 'a:1'}}",
            "exporters.otlp.endpont: unknown key; did you mean 'endpoint'?",
        ),
        ("exporter: {}", "exporter: unknown key; did you mean 'exporters'?"),
        ("service: {shutdown_timeout: 5}", "service.shutdown_timeout: write a duration with its unit"),
        ("exporters: {otlp: {retry: {multiplier: 0.5}}}", "multiplier must be at least 1"),
        ("service: x", "service: must be a section"),
        ("exporters: {otlp: {headers: {authorization: '${env:NONE}'}}}", "the environment has no NONE"),
    ],
)
def test_problems_name_key_and_mend(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert "p.yaml" in str(caught.value)


def test_log_can_be_written_as_the_release_before_reads_it(tmp_path: Path) -> None:
    config = load(tmp_path, "log: {format_version: 0}")
    log = to_ingress_config(config.service).log
    assert log is not None
    assert (log.format_version, load(tmp_path, "").service.log.format_version) == (0, CURRENT_VERSION)
    config = load(tmp_path, f"log: {{format_version: {CURRENT_VERSION + 1}}}")
    with pytest.raises(ConfigError, match=r"service: log\.format_version must be one of \(0, 1\)"):
        to_ingress_config(config.service)


def test_printed_configuration_is_complete_readable_and_without_secrets(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "exporters: {otlp: {endpoint: 'b:1', headers: {authorization: '${env:TOKEN}'}}}\n"
        "shutdown_timeout: 3s",
    )
    dumped = dump_config(config)
    assert "canary" not in json.dumps(dumped)
    again = read_processor_config(dumped, "printed")
    assert dump_config(again) == dumped
    assert again.service.shutdown_timeout_s == 3.0


def test_shipped_schema_is_that_of_the_code(tmp_path: Path) -> None:
    """Regenerate it with `otel-llmprism processor --print-schema`."""
    shipped = json.loads(SHIPPED.read_text())
    assert shipped == json.loads(json.dumps(build_processor_schema()))


def test_example_file_is_the_default_configuration() -> None:
    example = load_processor_config(Path(__file__).parents[2] / "docs" / "processor.yaml", {})
    default = read_processor_config({"exporters": {"otlp": {"endpoint": "127.0.0.1:14317"}}}, "default")
    assert dump_config(example) == dump_config(default)


def test_processor_that_nothing_can_reach_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"receivers.otlp.protocols: neither grpc nor http"):
        load(tmp_path, "receivers: {otlp: {protocols: {}}}")
