# Mappings to frozen Config dataclasses: types, defaults, and errors a person can act on.
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest

from otel_llmprism.config.convert import convert_mapping
from otel_llmprism.config.dump import dump_config
from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.schema import build_schema
from otel_llmprism.config.secret import Secret


class Mode(StrEnum):
    OFF = "off"
    FULL = "full"


@dataclass(frozen=True)
class Tls:
    cert_file: str
    min_version: str = "1.2"


@dataclass(frozen=True)
class Config:
    endpoint: str = "127.0.0.1:1"
    timeout_s: float = 5.0
    max_bytes: int = 1024
    count: int = 3
    ratio: float = 0.5
    is_on: bool = True
    mode: Mode = Mode.FULL
    token: Secret | None = None
    headers: Mapping[str, Secret] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    folder: Path = Path("/var")
    tls: Tls | None = None
    equals: str | int | float | bool | None = None

    def __post_init__(self) -> None:
        if self.count > 100:
            raise ValueError("count may be at most 100")


FULL = {
    "endpoint": "h:1",
    "timeout": "1m",
    "max_bytes": "2KiB",
    "count": "7",
    "ratio": 1,
    "is_on": "false",
    "mode": "off",
    "token": 12345,
    "headers": {"authorization": "Bearer canary"},
    "names": ["a", "b"],
    "folder": "/srv/x",
    "tls": {"cert_file": "c.pem"},
    "equals": 7,
}


def convert(mapping: object) -> Config:
    return convert_mapping(mapping, Config, "file.yaml")


def test_every_kind_is_read() -> None:
    assert convert(FULL) == Config(
        endpoint="h:1",
        timeout_s=60.0,
        max_bytes=2048,
        count=7,
        ratio=1.0,
        is_on=False,
        mode=Mode.OFF,
        token=Secret("12345"),
        headers={"authorization": Secret("Bearer canary")},
        names=("a", "b"),
        folder=Path("/srv/x"),
        tls=Tls("c.pem"),
        equals=7,
    )


def test_nothing_given_is_all_defaults() -> None:
    assert convert({}) == convert(None) == Config()
    given = {"headers": None, "names": None, "count": None, "tls": {"cert_file": "c"}}
    assert convert(given) == Config(tls=Tls("c"))


def test_bare_off_is_the_word_where_a_word_is_asked_for() -> None:
    assert convert({"mode": False}).mode is Mode.OFF


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"endpont": "x"}, "file.yaml: endpont: unknown key; did you mean 'endpoint'?"),
        ({"tls": {"cert_fil": "x"}}, "tls.cert_fil: unknown key; did you mean 'cert_file'?"),
        ({"zzz": 1}, "unknown key; known are endpoint, timeout, "),
        ({"timeout": 5}, "timeout: write a duration with its unit, such as 2s, 250ms or 1m30s, not 5"),
        ({"timeout_s": 5}, "timeout_s: unknown key; did you mean 'timeout'?"),
        ({"count": 1.5}, "count: must be a whole number, not 1.5"),
        ({"count": True}, "count: must be a whole number, not True"),
        ({"is_on": "maybe"}, "is_on: must be true or false"),
        ({"mode": "fast"}, "mode: must be one of off, full, not 'fast'"),
        ({"names": "a"}, "names: must be a list"),
        ({"headers": ["a"]}, "headers: must be a section of keys"),
        ({"endpoint": {"a": 1}}, "endpoint: must be a text"),
        ({"tls": "yes"}, "tls: must be a section of keys, not 'yes'"),
        ({"tls": {}}, "tls.cert_file: must be given"),
        ({"count": 101}, "the file: count may be at most 100"),
        (["a"], "the file: must be a section of keys"),
    ],
)
def test_error_names_file_path_and_mend(mapping: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        convert(mapping)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_problems_come_at_once_but_not_without_end() -> None:
    with pytest.raises(ConfigError) as caught:
        convert({f"key{i}": 1 for i in range(20)})
    assert str(caught.value).count("unknown key") == 5
    assert "and 15 more" in str(caught.value)


@pytest.mark.parametrize("bad", [{"token": ["canary"]}, {"headers": {"a": ["canary"]}}])
def test_errors_about_secrets_do_not_show_them(bad: object) -> None:
    with pytest.raises(ConfigError) as caught:
        convert(bad)
    assert "canary" not in str(caught.value)


def test_printed_configuration_hides_secrets_and_reads_back() -> None:
    dumped = dump_config(convert(FULL))
    assert "canary" not in repr(dumped)
    assert dumped["headers"] == {"authorization": "******"}
    assert convert(dumped).timeout_s == 60.0
    assert (dumped["timeout"], dumped["max_bytes"], dumped["mode"]) == ("60s", "2KiB", "off")


def test_secret_shows_itself_to_nobody() -> None:
    secret = Secret("canary")
    assert "canary" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == "canary"


def test_schema_has_the_same_keys_and_no_others() -> None:
    schema = build_schema(Config, "test")
    assert set(schema["properties"]) == set(FULL)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["timeout"]["default"] == "5s"
    assert schema["properties"]["tls"]["required"] == ["cert_file"]
