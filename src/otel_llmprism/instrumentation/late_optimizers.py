# Optimizers that were made before we came: torch has put its own wrapper round their class's `step` already,
# and our hook on that wrapping comes too late for them. Classes in, wrapped classes out.
import sys
from collections.abc import Callable, Iterator
from typing import Any

_MARK = "_llmprism_late"


def wrap_present_optimizers() -> int:
    """Wrap every optimizer class that torch has prepared; return how many. 0 without torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    from otel_llmprism.instrumentation.frameworks.torch import wrap_optimizer_step  # noqa: PLC0415  see above

    return wrap_classes(torch.optim.Optimizer, wrap_optimizer_step(lambda step: step))


def wrap_classes(root: type, wrap: Callable[[Any], Any]) -> int:
    """Wrap the `step` of each class below `root` that torch has marked as prepared, once."""
    count = 0
    for found in _list_below(root):
        step = vars(found).get("step")
        if getattr(step, "hooked", False) and not hasattr(step, _MARK):
            wrapper = wrap(step)
            wrapper.hooked = True  # torch would wrap it once more for the next instance
            setattr(wrapper, _MARK, True)
            found.step = wrapper  # type: ignore[attr-defined]
            count += 1
    return count


def _list_below(root: type) -> Iterator[type]:
    below: list[type] = root.__subclasses__()
    for found in below:
        yield found
        yield from _list_below(found)
