# Sources of today beside an extension of another day, or none: the Python path does it all.
import subprocess
import sys
from pathlib import Path

import pytest

from otel_llmprism.native import extension, library

ROOT = Path(__file__).parents[2]


def test_module_and_loader_name_the_same_version() -> None:
    source = (ROOT / "native" / "python" / "module.cpp").read_text(encoding="utf-8")
    assert f"kVersion = {extension.VERSION};" in source


def test_what_is_no_extension_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llmprism_hooks.abi3.so").write_bytes(b"no library")
    monkeypatch.setenv("OTEL_LLMPRISM_NATIVE", str(tmp_path))
    assert extension.load_extension.__wrapped__() is None


def test_an_extension_of_another_version_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    if extension.load_extension() is None:
        pytest.skip("the extension is not built here")
    monkeypatch.setattr(extension, "VERSION", extension.VERSION + 1)
    assert extension.load_extension.__wrapped__() is None


def test_a_python_without_the_stable_abi_loads_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "EXTENSION_SUFFIXES", [".cpython-314t-x86_64-linux-gnu.so", ".so"])
    assert extension.load_extension.__wrapped__() is None


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_LLMPRISM_NATIVE", "off")
    assert library.list_native_folders() == []
    assert extension.load_extension.__wrapped__() is None


def test_revoking_loads_nothing() -> None:
    script = (
        "from otel_llmprism.native import extension; extension.revoke_lanes(); "
        "print(extension.load_extension.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_memory_that_is_no_ring_is_refused() -> None:
    module = extension.load_extension()
    if module is None:
        pytest.skip("the extension is not built here")
    for size in (0, 255, 256, 300, 256 + 3 * 128):
        with pytest.raises(ValueError, match="no ring"):
            module.SlotRing(bytearray(size))
    with pytest.raises((TypeError, BufferError)):
        module.SlotRing(bytes(256 + 8 * 128))
