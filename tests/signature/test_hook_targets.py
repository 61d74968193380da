# Every place that we hook, looked up in the frameworks' published sources, from the oldest supported version
# to the newest: a target that moved is told by name before a user meets it.
from importlib import import_module

import pytest

from otel_llmprism.instrumentation.entry_points import FRAMEWORKS
from otel_llmprism.instrumentation.hooking import Target, Wrap
from otel_llmprism.instrumentation.source_tree import SourceTree, find_fault

# Version -> (folder of its sources, package in it). "installed": the engines' environment.
VERSIONS = {
    "vllm 0.11.0": ("vllm-0.11.0", "vllm"),
    "vllm 0.14.1": ("vllm-0.14.1", "vllm"),
    "vllm 0.17.1": ("vllm-0.17.1", "vllm"),
    "vllm 0.33.0": ("vllm-0.33.0", "vllm"),
    "vllm installed": ("installed", "vllm"),
    "sglang 0.5.5": ("sglang-0.5.5", "sglang"),
    "sglang 0.5.23": ("sglang-0.5.23", "sglang"),
    "megatron-core 0.16.1": ("megatron-core-0.16.1", "megatron.core"),
    "transformers 4.57.1": ("transformers-4.57.1", "transformers"),
    "transformers 5.23.0": ("transformers-5.23.0", "transformers"),
    "transformers installed": ("installed", "transformers"),
    "torch installed": ("installed", "torch"),
    "safetensors installed": ("installed", "safetensors"),
}
NEWEST = {"vllm": "vllm-0.33.0", "sglang": "sglang-0.5.23", "transformers": "transformers-5.23.0"}
# Packages that no index carries: their hooks are held by the unit tests alone.
UNPUBLISHED = ("megatron.training",)


def list_hooks() -> list[tuple[Target, Wrap]]:
    modules = (import_module(f"otel_llmprism.instrumentation.frameworks.{name}") for name in FRAMEWORKS)
    return [hook for module in modules for hook in module.HOOKS]


def list_targets() -> list[Target]:
    return list(dict.fromkeys(target for target, _ in list_hooks()))


def is_in(target: Target, package: str) -> bool:
    return f"{target.module}.".startswith(f"{package}.")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_required_target_is_in_its_place(
    version: str, source_trees: dict[str, SourceTree], absent_optional: dict[str, list[str]]
) -> None:
    folder, package = VERSIONS[version]
    assert folder in source_trees, f"the sources of {version} are missing (fetch them with: make engines)"
    faults = {
        target: fault
        for target in list_targets()
        if is_in(target, package) and (fault := find_fault(source_trees[folder], target))
    }
    absent_optional[version] = [target.name for target in faults if target.is_optional]
    required = [fault for target, fault in faults.items() if not target.is_optional]
    assert not required, "\n".join(required)


def test_every_optional_target_is_in_the_place_of_some_version(source_trees: dict[str, SourceTree]) -> None:
    """One that is nowhere any more would only look like support."""
    nowhere = []
    for target in (target for target in list_targets() if target.is_optional):
        trees = [source_trees[folder] for folder, package in VERSIONS.values() if is_in(target, package)]
        if trees and all(find_fault(tree, target) for tree in trees):
            nowhere.append(target.name)
    assert not nowhere


@pytest.mark.parametrize("package", NEWEST)
def test_what_is_hooked_under_several_names_has_one_in_the_newest_version(
    package: str, source_trees: dict[str, SourceTree]
) -> None:
    """Each name may be optional; that none of them is left is a hook lost."""
    tree = source_trees[NEWEST[package]]
    faults: dict[Wrap, list[str | None]] = {}
    for target, wrap in list_hooks():
        if is_in(target, package):
            faults.setdefault(wrap, []).append(find_fault(tree, target))
    lost = [" and ".join(map(str, found)) for found in faults.values() if len(found) > 1 and all(found)]
    assert not lost, "\n".join(lost)


def test_every_target_is_in_a_package_whose_sources_are_read() -> None:
    packages = [package for _, package in VERSIONS.values()]
    strangers = [
        target.name
        for target in list_targets()
        if not any(is_in(target, package) for package in (*packages, *UNPUBLISHED))
    ]
    assert not strangers
