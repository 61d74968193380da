import os
from types import SimpleNamespace
from typing import Any

import pytest

from otel_llmprism.instrumentation.engine_run import ENGINE_ID_VARIABLE, FOLDER_VARIABLE
from otel_llmprism.instrumentation.frameworks.sglang import launch
from otel_llmprism.instrumentation.rank_records import RankPlace


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each run that was begun was told."""
    told: list[dict[str, Any]] = []

    def begin(name: str, version: str, **about: Any) -> object:
        told.append({"name": name, "version": version, **about, "id": os.environ.get(ENGINE_ID_VARIABLE)})
        return object()

    monkeypatch.setattr(launch, "begin_run", begin)
    for variable in (launch.FRONT_VARIABLE, ENGINE_ID_VARIABLE, FOLDER_VARIABLE):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    return told


def build_args(**given: Any) -> Any:
    return SimpleNamespace(
        **{"dp_size": 1, "tp_size": 4, "pp_size": 2, "nnodes": 2, "served_model_name": "m"} | given
    )


def test_the_launching_process_begins_the_run_of_all_ranks_here(begun: list[dict[str, Any]]) -> None:
    launch.begin_launch(build_args())
    (told,) = begun
    assert (told["name"], told["model"], told["ranks"]) == ("sglang", "m", 4)
    assert os.environ[launch.FRONT_VARIABLE] == "1"


@pytest.mark.parametrize("name", ["dp_size", "attn_dp_size"])
def test_each_replica_is_an_engine_that_its_first_rank_begins(
    begun: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("OTEL_LLMPRISM_MODE", "sentinel")
    args = build_args(**{name: 2})
    launch.begin_launch(args)
    assert begun == []
    assert launch.FRONT_VARIABLE not in os.environ
    base = os.environ[ENGINE_ID_VARIABLE]
    assert launch.enter_scheduler(args, RankPlace(5, tp=1, dp=1)) is None
    launch.enter_scheduler(args, RankPlace(4, dp=1))
    assert begun[0]["id"] == f"{base}/dp1"


def test_a_lone_scheduler_that_nobody_told_of_a_run_begins_its_own(
    begun: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "join_run", lambda _role: None)
    launch.enter_scheduler(build_args(), RankPlace(0))
    assert begun == []
    launch.enter_scheduler(build_args(tp_size=1, pp_size=1, nnodes=1), RankPlace(0))
    assert [told["ranks"] for told in begun] == [1]


def test_the_launch_itself_gets_what_it_was_given(begun: list[dict[str, Any]]) -> None:
    class Engine:
        @classmethod
        def _launch_subprocesses(cls, server_args: Any, func: Any, port_args: Any = None) -> tuple[Any, ...]:
            return cls, server_args, func, port_args

    wrapped = launch.wrap_launch_method(Engine._launch_subprocesses.__func__)  # type: ignore[attr-defined]
    args = build_args()
    assert wrapped(Engine, args, len, port_args=5) == (Engine, args, len, 5)
    wrapped_function = launch.wrap_launch_function(
        lambda server_args, port_args=None: (server_args, port_args)
    )
    assert wrapped_function(server_args=args) == (args, None)
    assert len(begun) == 2
