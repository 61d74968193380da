# The folder that stands in for an installation: Python finds in it what an installation would have written.
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from otel_llmprism.testing.engine_overlay import PROJECT, write_overlay

ASK = """
from importlib.metadata import entry_points, version
for group in ("opentelemetry_pre_instrument", "opentelemetry_instrumentor", "vllm.general_plugins"):
    for entry in entry_points(group=group):
        print(group, entry.name, entry.value)
"""


def list_entry_points(folders: list[Path]) -> set[str]:
    """Ask a Python that has no package installed."""
    environment = {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, "-S", "-c", ASK]
    return set(subprocess.check_output(command, env=environment, text=True).splitlines())


def test_every_entry_point_of_the_project_is_found(tmp_path: Path) -> None:
    groups = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]
    found = list_entry_points(write_overlay(tmp_path))
    for group in ("opentelemetry_pre_instrument", "opentelemetry_instrumentor", "vllm.general_plugins"):
        assert {f"{group} {name} {value}" for name, value in groups[group].items()} <= found


@pytest.mark.parametrize("is_instrumented", [True, False])
def test_the_token_log_is_found_with_and_without_us(tmp_path: Path, is_instrumented: bool) -> None:
    found = list_entry_points(write_overlay(tmp_path, is_instrumented=is_instrumented))
    assert [line for line in found if "engine_token_log" in line]
    assert bool([line for line in found if "otel_llmprism.instrumentation" in line]) is is_instrumented
