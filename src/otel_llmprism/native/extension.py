# Finds and loads llmprism_hooks, the extension that does a step's hooks without Python's own pace. None when
# it is absent, of another version, for another Python, or switched off (OTEL_LLMPRISM_NATIVE=off, or a folder
# without it): then the Python path does the same, slower. A stale one is refused by its number.
import os
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from otel_llmprism.native.library import list_native_folders

VERSION = 3  # that of native/python/module.cpp
_NAME, _SUFFIX = "llmprism_hooks", ".abi3.so"


@cache
def load_extension() -> Any:
    """Return the extension module, or None; decided once per process."""
    if _SUFFIX not in EXTENSION_SUFFIXES or sys.implementation.name != "cpython":
        return None  # a free-threaded Python: what runs under one lock there is not what was built
    for folder in list_native_folders():
        path = folder / (_NAME + _SUFFIX)
        if path.exists() and (module := _open_extension(path)) is not None:
            return module
    return None


def revoke_lanes() -> None:
    """Leave every step to Python until it lends some again: something about the run has changed."""
    if load_extension.cache_info().currsize and (module := load_extension()) is not None:
        module.revoke_lanes()


def _open_extension(path: Path) -> Any:
    loader = ExtensionFileLoader(_NAME, str(path))
    spec = spec_from_loader(_NAME, loader)
    assert spec is not None, "a loader was given"
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except (ImportError, OSError):
        return None
    return module if getattr(module, "VERSION", None) == VERSION else None


os.register_at_fork(after_in_child=revoke_lanes)
