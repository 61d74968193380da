# Classes that torch has prepared before us get their wrapper late, once, and no others do.
import functools
from collections.abc import Callable
from typing import Any

from otel_llmprism.instrumentation.late_optimizers import wrap_classes


def test_prepared_classes_are_wrapped_once_and_others_left_to_torch() -> None:
    class Optimizer:
        pass

    class Used(Optimizer):
        def step(self) -> str:
            return "stepped"

    class Below(Used):
        pass

    class Unused(Optimizer):
        def step(self) -> str:
            return "stepped"

    calls: list[str] = []

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*args: Any) -> Any:
            calls.append("ours")
            return original(*args)

        return step

    Used.step.hooked = True  # type: ignore[attr-defined]  # as torch marks it
    early = Used()
    assert wrap_classes(Optimizer, wrap) == 1
    assert wrap_classes(Optimizer, wrap) == 0
    assert [early.step(), Below().step(), Unused().step()] == ["stepped"] * 3
    assert calls == ["ours", "ours"]
