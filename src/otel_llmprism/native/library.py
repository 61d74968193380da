# Finds and loads libllmprism. None when it is absent, of another ABI, or switched off
# (OTEL_LLMPRISM_NATIVE=off): callers then use their Python twin. A folder in that variable is where a
# build other than the installed one lies (sanitizers).
import ctypes
import os
import sysconfig
from functools import cache
from pathlib import Path

ABI_VERSION = 4  # that of abi.h; another one is not used, so that nothing is called that is not there
_FILE = "libllmprism.so"


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the loaded library, or None; decided once per process."""
    for folder in list_native_folders():
        library = _open_library(folder / _FILE)
        if library is not None:
            return library
    return None


def list_native_folders() -> list[Path]:
    """Return where what is built may lie; none when it is switched off."""
    asked = os.environ.get("OTEL_LLMPRISM_NATIVE", "on")
    if asked == "off":
        return []
    if Path(asked).is_absolute():
        return [Path(asked)]
    beside_us = Path(__file__).parent
    # An editable install keeps the sources here and the built library in site-packages.
    installed = Path(sysconfig.get_path("platlib")) / "otel_llmprism" / "native"
    return [beside_us, installed]


def _open_library(path: Path) -> ctypes.CDLL | None:
    if not path.exists():
        return None
    try:
        library = ctypes.CDLL(str(path))
        read_version = library.llmprism_abi_version
    except (OSError, AttributeError):
        return None
    read_version.restype = ctypes.c_uint32
    return library if read_version() == ABI_VERSION else None
