# What `up` is told by file, flags and environment, and what it refuses.
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.service.all_in_one.settings import UpFlags, UpSettings, load_up_settings


def load(
    tmp_path: Path, text: str = "", environment: dict[str, str] | None = None, **flags: Any
) -> UpSettings:
    file = tmp_path / "up.yaml"
    file.write_text(text)
    return load_up_settings(UpFlags(config=file, data=tmp_path / "data", **flags), environment or {})


def test_without_a_file_everything_has_a_default() -> None:
    settings = load_up_settings(UpFlags(), {"XDG_DATA_HOME": "/data"})
    assert settings.data == Path("/data/otel-llmprism")
    assert settings.config.service.log.directory == Path("/data/otel-llmprism/log")
    assert settings.config.ui.endpoint == "127.0.0.1:8317"
    assert not settings.has_export
    assert load_up_settings(UpFlags(), {"HOME": "/h"}).data.parts[-3:] == (".local", "share", "otel-llmprism")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    text = "ui: {endpoint: '127.0.0.1:1'}\nreceivers: {otlp: {protocols: {grpc: {endpoint: '127.0.0.1:2'}}}}"
    settings = load(tmp_path, text, otlp_grpc="127.0.0.1:3", ui="127.0.0.1:4", export="http://collector:4318")
    protocols = settings.config.receivers.otlp.protocols
    assert protocols.grpc is not None
    assert (protocols.grpc.endpoint, protocols.http) == ("127.0.0.1:3", None)
    assert settings.config.ui.endpoint == "127.0.0.1:4"
    assert settings.has_export


def test_the_store_reads_its_section(tmp_path: Path) -> None:
    text = "store: {max_bytes: 5MiB, max_age: 2h, index_attributes: [my.key]}\ndurability: host"
    store = load(tmp_path, text).build_store_config()
    assert (store.max_bytes, store.max_age_s, store.index_attributes) == (5 << 20, 7200.0, ("my.key",))
    assert (store.durability, store.folder) == ("host", tmp_path / "data")


def test_a_folder_for_the_log_is_kept(tmp_path: Path) -> None:
    settings = load(tmp_path, "log: {directory: /var/lib/own}")
    assert settings.config.service.log.directory == Path("/var/lib/own")


def test_an_exporter_of_the_environment_is_not_taken(tmp_path: Path) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}  # most likely ourselves
    assert not load(tmp_path, environment=environment).has_export


@pytest.mark.parametrize(
    ("text", "flags", "says"),
    [
        ("", {"ui": "0.0.0.0:8317"}, "needs a token: --ui-token-file"),
        ("", {"ui": "nonsense"}, "is no HOST:PORT"),
        ("ui: {endpont: x}", {}, "endpoint"),
        ("stroe: {}", {}, "store"),
        ("store: {max_bytes: 5kB}", {}, "at least 1MiB"),
        ("mode: beside", {}, "remove mode"),
        ("", {"export": "127.0.0.1:4317"}, "our own receiver"),
        ("", {"ui_token_file": "/nowhere/token"}, "cannot read /nowhere/token"),
        (
            f"store: {{index_attributes: [{', '.join(f'k{n}' for n in range(70))}]}}",
            {},
            "index_attributes: at most",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_mend(
    tmp_path: Path, text: str, flags: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        load(tmp_path, text, **flags)


def test_a_token_opens_the_page_to_the_network(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("open-sesame\n")
    file.chmod(0o600)
    for settings in (
        load(tmp_path, ui="0.0.0.0:8317", ui_token_file=str(file)),
        load(tmp_path, environment={"OTEL_LLMPRISM_UI_TOKEN_FILE": str(file)}, ui="0.0.0.0:8317"),
        load(tmp_path, environment={"OTEL_LLMPRISM_UI_TOKEN": "open-sesame"}, ui="0.0.0.0:8317"),
    ):
        assert settings.token is not None
        assert settings.token.allows(b"Bearer open-sesame")
