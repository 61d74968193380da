# The ways in: OpenTelemetry's auto-instrumentation, vLLM's and SGLang's plugin loaders. Each only registers
# hooks on modules that are not imported yet: no thread, no socket, no framework here. Nothing is raised,
# since whoever loads us would give up on everything else it wanted to load.
import os
import sys
from collections.abc import Collection
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from otel_llmprism.instrumentation.hooking import call_on_import

MODE_VARIABLE = "OTEL_LLMPRISM_MODE"
# Each has a module of its name below `frameworks`, with install() and remove(), which is imported when the
# first of these packages is (namespace packages, as `megatron`, run no import hook themselves).
_ROOTS = {
    "vllm": ("vllm",),
    "sglang": ("sglang",),
    "torch": ("torch",),
    "transformers": ("transformers",),
    "megatron": ("megatron.core", "megatron.training"),
    "collectives": ("torch",),
    "profilers": ("torch",),
}
FRAMEWORKS = tuple(_ROOTS)
_MODULES = "otel_llmprism.instrumentation.frameworks"
_DISABLED_VARIABLE = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
_wanted: set[str] = set()


def prepare_environment() -> None:
    """`opentelemetry_pre_instrument`: being asked for by name means sentinel, here and in child processes."""
    if not is_disabled():
        os.environ.setdefault(MODE_VARIABLE, "sentinel")


def load_vllm_plugin() -> None:
    """`vllm.general_plugins`: called in each of vLLM's processes, also those that no other way reaches."""
    install_frameworks(("vllm", "collectives", "profilers"), is_asked_for=False)


def load_sglang_plugin() -> None:
    """`sglang.srt.plugins`: called in each of SGLang's processes."""
    install_frameworks(("sglang", "collectives", "profilers"), is_asked_for=False)


def install_frameworks(names: Collection[str], *, is_asked_for: bool = True) -> None:
    """Register the hooks of these frameworks; without the mode being asked for they stay asleep."""
    if is_disabled():
        return
    os.environ.setdefault(MODE_VARIABLE, "sentinel" if is_asked_for else "off")
    disabled = _list_disabled()
    for name in names:
        if f"llmprism_{name}" in disabled:
            continue
        _wanted.add(name)
        for root in _ROOTS[name]:
            call_on_import(f"install {name}", root, partial(_install, name))


def remove_frameworks(names: Collection[str]) -> None:
    """Take the hooks out again."""
    for name in names:
        _wanted.discard(name)
        module = sys.modules.get(f"{_MODULES}.{name}")
        try:
            if module is not None:
                module.remove()
        except Exception as error:  # noqa: BLE001
            _warn(name, error)


def _install(name: str, _root: ModuleType) -> None:
    if name not in _wanted:
        return
    try:
        import_module(f"{_MODULES}.{name}").install()
    except Exception as error:  # noqa: BLE001  one framework's trouble is not the others', nor the import's
        _warn(name, error)


def is_disabled() -> bool:
    """Tell whether the user wants nothing of ours to run."""
    if any(_is_true(name) for name in ("OTEL_LLMPRISM_DISABLED", "OTEL_SDK_DISABLED")):
        return True
    return not _list_disabled().isdisjoint({"llmprism", "*"})


def _list_disabled() -> set[str]:
    return {word.strip() for word in os.environ.get(_DISABLED_VARIABLE, "").split(",")}


def _is_true(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() == "true"


def _warn(name: str, error: Exception) -> None:
    import logging  # noqa: PLC0415  a third of our import time, for a line that is hardly ever written

    logging.getLogger("otel_llmprism").warning("llmprism is off for %s: %s", name, error)


def __getattr__(name: str) -> Any:
    # The instrumentor classes need opentelemetry-instrumentation, which the plugin ways do without.
    if name.endswith("Instrumentor"):
        return getattr(import_module("otel_llmprism.instrumentation.instrumentors"), name)
    raise AttributeError(name)
