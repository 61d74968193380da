# A vLLM of a version that nobody knows: some of its places are gone or take other parameters before anybody
# can hook them. Begins as another package's `opentelemetry_pre_instrument` would; sleeps until asked.
import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

VARIABLE = "ENGINE_CHANGED_PLACES"  # such as "gone=MODULE:CLASS.NAME,changed=MODULE:CLASS.NAME"


def install() -> None:
    """Change the places that the variable names, as soon as their modules are imported."""
    asked = [item for item in os.environ.get(VARIABLE, "").split(",") if item]
    for item in asked:
        from wrapt import register_post_import_hook  # noqa: PLC0415  the engine's environment has it

        how, _, place = item.partition("=")
        module, _, path = place.partition(":")
        register_post_import_hook(functools.partial(change_place, how, path), module)


def change_place(how: str, path: str, module: ModuleType) -> None:
    """Take one method away, or give it parameters that tell nobody what it takes."""
    owner_name, _, name = path.partition(".")
    owner = getattr(module, owner_name)
    if how == "gone":
        delattr(owner, name)
    else:
        setattr(owner, name, take_anything(vars(owner)[name]))


def take_anything(original: Callable[..., Any]) -> Callable[..., Any]:
    def changed(self: Any, *anything: Any, **named: Any) -> Any:
        return original(self, *anything, **named)

    return changed
