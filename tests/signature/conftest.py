# The frameworks' real sources, found or named as missing, and what the optional targets of each version are.
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_llmprism.instrumentation.source_tree import SourceTree

REPOSITORY = Path(__file__).parents[2]
ABSENT_OPTIONAL = pytest.StashKey[dict[str, list[str]]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder reads real sources."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.signature)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ABSENT_OPTIONAL] = {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the optional targets that a version does not have: what we cannot see there."""
    absent = {version: names for version, names in config.stash[ABSENT_OPTIONAL].items() if names}
    for version, names in absent.items():
        terminalreporter.write_line(f"{version} has no {', '.join(names)}")


@pytest.fixture
def absent_optional(pytestconfig: pytest.Config) -> dict[str, list[str]]:
    return pytestconfig.stash[ABSENT_OPTIONAL]


@pytest.fixture(scope="session")
def source_trees() -> dict[str, SourceTree]:
    """Return the trees by name-version; fails in CI, and skips elsewhere, when they were not fetched."""
    sources = ask_tool("fetch_engine_sources.py")
    trees = {path.name: SourceTree(path) for path in sorted(sources.glob("[!.]*-*"))}
    packages = list((ask_tool("build_engines.py") / "lib").glob("*/site-packages"))
    if trees and packages:
        return trees | {"installed": SourceTree(packages[0])}
    text = "the engines' sources are missing (fetch them with: make engines)"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def ask_tool(name: str) -> Path:
    command = [sys.executable, str(REPOSITORY / "tools" / name), "--print-dir"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
