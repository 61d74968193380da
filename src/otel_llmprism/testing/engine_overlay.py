# What makes an engine's environment find this clone's package: a folder for PYTHONPATH that holds only what
# an installation would write, the names of entry points. Nothing in the shared environment changes.
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[2]
PROJECT = SOURCES.parent / "pyproject.toml"
# Each sleeps until a variable of its own wakes it.
TEST_PLUGINS = {
    "vllm.general_plugins": {
        "engine_token_log": "otel_llmprism.testing.engine_token_log:install",
        "engine_delays": "otel_llmprism.testing.faults.vllm_delays:install",
        "engine_hook_probe": "otel_llmprism.testing.engine_hook_probe:install",
    },
    "opentelemetry_pre_instrument": {
        "engine_changes": "otel_llmprism.testing.engine_changes:install",
    },
}


def write_overlay(folder: Path, *, is_instrumented: bool = True) -> list[Path]:
    """Return what to put on PYTHONPATH. Not instrumented: the test's own log is found, nothing of ours."""
    with PROJECT.open("rb") as file:
        project = tomllib.load(file)["project"]
    if is_instrumented:
        _write_distribution(folder, project["name"], project["version"], project["entry-points"])
    _write_distribution(folder, "engine-test-plugins", "1", TEST_PLUGINS)
    return [folder, SOURCES]


def _write_distribution(folder: Path, name: str, version: str, entry_points: Mapping[str, Any]) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    groups = (
        f"[{group}]\n" + "".join(f"{entry} = {target}\n" for entry, target in entries.items())
        for group, entries in entry_points.items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
