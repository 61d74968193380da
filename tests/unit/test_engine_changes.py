# A stand-in for an unknown version must be one: our hooks find its changed places different, and it works on.
from types import ModuleType
from typing import Any

import pytest

from otel_llmprism.instrumentation.hooking import Target, TargetError, patch_target
from otel_llmprism.testing.engine_changes import change_place


def make_module() -> Any:
    class Worker:
        def execute(self, work: int) -> int:
            return work + 1

    module: Any = ModuleType("engine")
    module.Worker = Worker
    return module


@pytest.mark.parametrize(("how", "why"), [("gone", "is not there"), ("changed", "takes")])
def test_a_changed_place_is_not_the_one_that_our_hook_knows(how: str, why: str) -> None:
    module = make_module()
    change_place(how, "Worker.execute", module)
    with pytest.raises(TargetError, match=why):
        patch_target("test", module, Target("engine", "Worker.execute", ("work",)), lambda original: original)


def test_a_method_with_other_parameters_still_does_what_it_did() -> None:
    module = make_module()
    change_place("changed", "Worker.execute", module)
    assert module.Worker().execute(1) == module.Worker().execute(work=1) == 2
