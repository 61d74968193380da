# Files to mappings: expansion, duplicates, unreadable files.
import os
from itertools import pairwise
from pathlib import Path

import pytest

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.load import load_mapping

ENVIRONMENT = {"PORT": "4317", "TOKEN": "a$b${env:PORT}", "EMPTY": ""}


def load(tmp_path: Path, text: str | bytes) -> dict[str, object]:
    path = tmp_path / "c.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_mapping(path, ENVIRONMENT)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:PORT}", "4317"),
        ("host:${env:PORT}/x", "host:4317/x"),
        ("${env:NONE:-d:e-f}", "d:e-f"),
        ("${env:EMPTY:-d}", "d"),
        ("${env:EMPTY}", ""),
        ("${env:NONE:-}", ""),
        ("${env:TOKEN}", "a$b${env:PORT}"),
        ("cost $5, $${env:PORT}", "cost $5, ${env:PORT}"),
    ],
)
def test_references_are_replaced_once(tmp_path: Path, text: str, value: str) -> None:
    assert load(tmp_path, f"a:\n  - '{text}'") == {"a": [value]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {b: '${env:NONE}'}", "a.b: the environment has no NONE; set it or write ${env:NONE:-default}"),
        ("a: ['${HOME}']", "a[0]: write ${env:NAME} or ${env:NAME:-default}, not ${HOME}"),
        ("a: 1\na: 2", "line 2: the key 'a' is given twice"),
        ("a: [", "line"),
        ("a: !!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("- a", "expected sections such as `receivers:`, not a list"),
        (b"\xff\xfe\x00", "is not YAML"),
        ("#" * (1 << 20) + "\n", "is larger than"),
    ],
)
def test_bad_files_are_named_with_the_mend(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert "c.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_absent_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_mapping(tmp_path / "none.yaml", {})
    with pytest.raises(ConfigError, match="Is a directory"):
        load_mapping(tmp_path, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    with pytest.raises(ConfigError, match="Permission denied"):
        load_mapping(path, {})


def test_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "# nothing yet\n") == {}


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1, 1, 1]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghi")),
        "a: &a [*a]",
        "a: &a {b: *a}",
    ],
)
def test_aliases_that_stand_for_too_much_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="write out what its aliases repeat"):
        load(tmp_path, text)
