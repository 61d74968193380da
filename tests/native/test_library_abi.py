# Sources of today beside a library of another day: it is not used, so nothing is called that is not there.
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from otel_llmprism.native import library

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("cc") or ""


def test_header_and_loader_name_the_same_version() -> None:
    header = (ROOT / "native" / "include" / "llmprism" / "abi.h").read_text(encoding="utf-8")
    assert re.findall(r"kAbiVersion = (\d+);", header) == [str(library.ABI_VERSION)]


@pytest.mark.skipif(not COMPILER, reason="needs a C compiler")
@pytest.mark.parametrize(
    "source",
    [f"unsigned llmprism_abi_version(void) {{ return {library.ABI_VERSION - 1}; }}", "int other(void);"],
    ids=["built before", "not ours"],
)
def test_library_of_another_version_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    (tmp_path / "old.c").write_text(source)
    words = [COMPILER, "-shared", "-fPIC", "-o", str(tmp_path / "libllmprism.so"), str(tmp_path / "old.c")]
    subprocess.run(words, check=True)
    monkeypatch.setenv("OTEL_LLMPRISM_NATIVE", str(tmp_path))
    assert library.load_library.__wrapped__() is None
