# The hooks on collectives come off without taking along what somebody else put round them.
import functools
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from otel_llmprism.instrumentation.frameworks import collectives

CORE = "torch.distributed.distributed_c10d"


class Work:
    def wait(self) -> str:
        return "waited"


@pytest.fixture
def distributed(monkeypatch: pytest.MonkeyPatch) -> Any:
    public: Any = ModuleType("torch.distributed")
    public.all_reduce = lambda tensor: tensor
    public.barrier = lambda: "barrier"
    core: Any = ModuleType(CORE)
    core.Work = type("Work", (Work,), {"wait": Work.wait})
    torch: Any = ModuleType("torch")
    torch.compiler = SimpleNamespace(is_compiling=lambda: False)
    for name, module in (("torch", torch), ("torch.distributed", public), (CORE, core)):
        monkeypatch.setitem(sys.modules, name, module)
    return public


def test_removal_leaves_what_somebody_put_round_a_collective(distributed: Any) -> None:
    reduce, barrier = distributed.all_reduce, distributed.barrier
    for name, original in (("all_reduce", reduce), ("barrier", barrier)):
        collectives.wrap_torch_function(name, lambda _args, _kwargs: None)(original)
        ours = getattr(distributed, name)
        vars(ours)["_llmprism_original"] = original  # as hooking.py marks it

    @functools.wraps(distributed.all_reduce)
    def theirs(tensor: Any) -> Any:
        return tensor

    distributed.all_reduce = theirs
    collectives.remove()
    assert distributed.all_reduce is theirs
    assert distributed.barrier is barrier
    assert vars(sys.modules[CORE])["Work"]().wait() == "waited"
    assert vars(vars(sys.modules[CORE])["Work"])["wait"] is Work.wait
