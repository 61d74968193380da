import sys
from types import ModuleType, SimpleNamespace

import pytest

from otel_llmprism.instrumentation.frameworks.sglang import scheduler as scheduler_hooks


@pytest.mark.parametrize(
    ("sizes", "ranks", "replica"),
    [
        ({"attn_dp_size": 2}, {"attn_dp_rank": 1}, 1),
        ({"attn_dp_size": 2}, {"attn_dp_rank": 1, "dp_rank": 1}, 3),
        ({"attn_dp_size": 1}, {"dp_rank": 3}, 3),
        ({}, {"attn_dp_rank": 1, "dp_rank": 1}, 1),
        ({}, {"dp_rank": 2}, 2),
        ({}, {"dp_rank": None}, 0),
    ],
)
def test_every_scheduler_that_plans_on_its_own_has_a_number_of_its_own(
    sizes: dict[str, int], ranks: dict[str, int], replica: int
) -> None:
    scheduler = SimpleNamespace(server_args=SimpleNamespace(tp_size=4, **sizes), tp_rank=2, **ranks)
    assert scheduler_hooks.read_place(scheduler).dp == replica


def test_ranks_come_from_the_parallel_context_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Parallel:
        tp_rank, pp_rank, attn_tp_rank, attn_dp_rank = 3, 1, 1, 1

        def __getattr__(self, name: str) -> int:
            raise RuntimeError(f"{name} has not been written in this process")

    module = ModuleType("sglang.srt.runtime_context")
    vars(module).update(get_parallel=Parallel)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    place = scheduler_hooks.read_place(
        SimpleNamespace(server_args=SimpleNamespace(tp_size=4, attn_dp_size=2))
    )
    assert (place.rank, place.tp, place.pp, place.dp, place.ep) == (7, 1, 1, 1, 0)
