# Puts our wrappers round a framework's callables once it is imported: targets in, patched owners out.
# What is gone or changed turns off that one hook and is said once. Nothing here raises into the import.
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Wrap = Callable[[Any], Any]  # the original callable in, the one that takes its place out
_MARK = "_llmprism_original"


@dataclass(frozen=True, slots=True)
class Target:
    """One place in a framework. `parameters`: those that the wrapper relies on, in order, without self."""

    module: str
    path: str  # inside the module, such as "Scheduler.schedule"
    parameters: tuple[str, ...] = ()
    is_optional: bool = False  # some supported versions have no such place: nothing is said

    @property
    def name(self) -> str:
        return f"{self.module}.{self.path}"


class TargetError(Exception):
    """The framework has no such place, or another one than we know."""


@dataclass(slots=True)
class _Patch:
    owner: Any
    attribute: str
    previous: Any  # what the owner itself had; _INHERITED when it had nothing
    placed: Any  # what it has now, unless somebody wrapped it again


_INHERITED = object()
_registered: set[tuple[str, str]] = set()  # (who waits, module)
_removed: set[str] = set()  # frameworks that were uninstalled; a late import must not patch for them
_patches: dict[str, list[_Patch]] = {}


def install_hooks(framework: str, hooks: Sequence[tuple[Target, Wrap]]) -> None:
    """Wrap each target as soon as its module is imported, at once where it is. Calling again is harmless."""
    _removed.discard(framework)
    for module in dict.fromkeys(target.module for target, _ in hooks):
        mine = [(target, wrap) for target, wrap in hooks if target.module == module]
        _run_on_import(framework, module, mine)


def remove_hooks(framework: str) -> None:
    """Put back what was there before; a wrapper that somebody else wrapped again stays under theirs."""
    _removed.add(framework)
    for patch in reversed(_patches.pop(framework, [])):
        # Not by our mark: functools.wraps copies that to whoever wrapped us.
        if vars(patch.owner).get(patch.attribute) is not patch.placed:
            continue
        if patch.previous is _INHERITED:
            delattr(patch.owner, patch.attribute)
        else:
            setattr(patch.owner, patch.attribute, patch.previous)


def patch_target(framework: str, module: ModuleType, target: Target, wrap: Wrap) -> None:
    """Put the wrapper in place; TargetError when the place is not as we know it."""
    owner, attribute = _find_owner(module, target)
    found = inspect.getattr_static(owner, attribute)
    kind = type(found) if isinstance(found, (staticmethod, classmethod)) else None
    original = found.__func__ if kind else found
    if hasattr(original, _MARK) or _is_patched(owner, attribute):
        return
    check_parameters(target, original)
    wrapper = wrap(original)
    setattr(wrapper, _MARK, original)
    previous = vars(owner).get(attribute, _INHERITED)
    placed = kind(wrapper) if kind else wrapper
    setattr(owner, attribute, placed)
    _patches.setdefault(framework, []).append(_Patch(owner, attribute, previous, placed))


def _is_patched(owner: Any, attribute: str) -> bool:
    # Somebody may have wrapped our wrapper since: a second one would record everything twice.
    return any(
        patch.owner is owner and patch.attribute == attribute
        for patches in _patches.values()
        for patch in patches
    )


def check_parameters(target: Target, original: Callable[..., Any]) -> None:
    """Raise TargetError unless the callable begins with the parameters that the wrapper relies on."""
    names = list(inspect.signature(original).parameters)
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    wanted = list(target.parameters)
    if names[: len(wanted)] != wanted:
        raise TargetError(f"takes ({', '.join(names)}), not ({', '.join(wanted)}, ...)")


def _find_owner(module: ModuleType, target: Target) -> tuple[Any, str]:
    *path, attribute = target.path.split(".")
    owner: Any = module
    for name in path:
        owner = getattr(owner, name, None)
    if owner is None or not hasattr(owner, attribute):
        raise TargetError("is not there")
    return owner, attribute


def call_on_import(key: str, module_name: str, call: Callable[[ModuleType], None]) -> None:
    """Call once the module is imported, at once where it is; `call` must not raise. Once for each key."""
    if module_name in sys.modules:
        call(sys.modules[module_name])
    elif (key, module_name) not in _registered:
        _registered.add((key, module_name))
        from wrapt import register_post_import_hook  # noqa: PLC0415  not in processes that never hook

        register_post_import_hook(call, module_name)


def _run_on_import(framework: str, module_name: str, hooks: list[tuple[Target, Wrap]]) -> None:
    def patch_all(module: ModuleType) -> None:
        if framework in _removed:
            return
        for target, wrap in hooks:
            try:
                patch_target(framework, module, target, wrap)
            except Exception as error:  # noqa: BLE001  the framework's import must go on
                if not target.is_optional:
                    _tell_absent(target, error)

    call_on_import(framework, module_name, patch_all)


def _tell_absent(target: Target, error: Exception) -> None:
    # Recorders and ring are not loaded into a process that only waits for a framework.
    from otel_llmprism.instrumentation.process_run import tell_absent_hook  # noqa: PLC0415

    tell_absent_hook(target.name, str(error) or type(error).__name__)
