# run.json: what this release and the one before wrote is read, anything else is refused by name.
import json
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.native.run_folder import (
    RUN_FILE,
    RUN_VERSION,
    RunDescription,
    make_run_folder,
    read_run_description,
)

DESCRIPTION = RunDescription("e", "ab" * 16, "", "vllm", "1", "m", "chat", "sample", 1, 2)


def rewrite(folder: Path, **changed: Any) -> None:
    path = folder / RUN_FILE
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changed), encoding="utf-8")


def test_what_was_written_is_read_back_also_from_the_version_before(tmp_path: Path) -> None:
    folder = make_run_folder(tmp_path / "root", DESCRIPTION)
    assert read_run_description(folder) == DESCRIPTION
    rewrite(folder, version=RUN_VERSION - 1)
    assert read_run_description(folder).engine_id == "e"


@pytest.mark.parametrize("version", [RUN_VERSION + 1, "1", None, [1], {}])
def test_another_version_is_refused_by_name(tmp_path: Path, version: object) -> None:
    folder = make_run_folder(tmp_path / "root", DESCRIPTION)
    rewrite(folder, version=version)
    with pytest.raises(ValueError, match=r"run\.json is neither of version"):
        read_run_description(folder)
