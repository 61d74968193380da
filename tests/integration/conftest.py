# What the integration tests share: the real tools, found or named as missing, and programs whose logs
# are shown when a test fails and which are all ended when it is over.
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from otel_llmprism.testing.programs import Programs

REPOSITORY = Path(__file__).parents[2]
SHOWN_LOG_BYTES = 6000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is an integration test."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Append the ends of the programs' logs to the report of a failed test."""
    report = yield
    programs = getattr(item, "funcargs", {}).get("programs")
    if report.failed and isinstance(programs, Programs):
        for program in programs.started:
            status = program.process.poll()  # -11 tells a crash that a log cannot tell
            title = f"log of {program.name} ({'running' if status is None else f'ended: {status}'})"
            report.sections.append((title, program.read_log()[-SHOWN_LOG_BYTES:]))
    return report


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with Programs(tmp_path) as started:
        yield started


@pytest.fixture(scope="session")
def tools() -> dict[str, Path]:
    """Return the real programs by name; fails in CI, and skips elsewhere, naming what is missing."""
    script = [sys.executable, str(REPOSITORY / "tools" / "build_tools.py")]
    checked = subprocess.run([*script, "--check"], capture_output=True, text=True, check=False)
    if checked.returncode:
        missing = "; ".join(checked.stdout.split("\n")).strip("; ")
        text = f"real tools are missing: {missing} (build them with: make tools)"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    folder = Path(checked.stdout.strip())
    return {name: folder / name for name in ("otelcol-llmprism", "telemetrygen", "go-client", "jaeger")}


@pytest.fixture(scope="session")
def configurations() -> Path:
    """Return the folder of the Collector's and Jaeger's configurations."""
    return REPOSITORY / "collector-config"
