# Tests that need a GPU: run by `pytest -m gpu` where one is, skipped by name elsewhere.
import shutil
import subprocess
from pathlib import Path

import pytest


def find_reason_to_skip() -> str | None:
    """Say why no test can use a GPU here, or None. The driver's own tool is asked, no framework."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "no GPU: nvidia-smi is not installed"
    listed = subprocess.run([tool, "--list-gpus"], capture_output=True, text=True, timeout=60, check=False)
    return None if listed.returncode == 0 and listed.stdout.strip() else "no GPU: nvidia-smi lists none"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, and skip it where it cannot run."""
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    reason = find_reason_to_skip() if mine else None
    for item in mine:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
