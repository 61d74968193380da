import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_llmprism.instrumentation.engine_run import ENGINE_ID_VARIABLE, FOLDER_VARIABLE
from otel_llmprism.instrumentation.frameworks.vllm import engine_core, launch
from otel_llmprism.instrumentation.frameworks.vllm.launch import (
    LAUNCHER_VARIABLE,
    REPLICA_FOLDERS_VARIABLE,
    REPLICAS_VARIABLE,
)
from otel_llmprism.native.ring_records import Kind, Pause, StepKind
from otel_llmprism.native.run_folder import RUN_FILE


class Runs:
    """What launch.py asks of process_run, kept instead of done."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.joined: list[str] = []
        self.ended = 0
        self.current: Any = None

    def begin_run(self, name: str, version: str, **about: Any) -> Any:
        engine_id = os.environ.setdefault(ENGINE_ID_VARIABLE, f"minted-{len(self.begun)}")
        self.begun.append({"name": name, "version": version, "engine_id": engine_id, **about})
        self.current = SimpleNamespace(description=SimpleNamespace(starter_pid=os.getpid()))
        return self.current

    def join_run(self, role: str) -> str:
        self.joined.append(role)
        return "joined"

    def end_run(self) -> None:
        self.ended += 1

    def current_run(self) -> Any:
        return self.current


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    one = Runs()
    for name in ("begin_run", "join_run", "end_run", "current_run"):
        monkeypatch.setattr(launch, name, getattr(one, name))
    for name in ("end_run", "current_run"):
        monkeypatch.setattr(engine_core, name, getattr(one, name))
    told = (LAUNCHER_VARIABLE, REPLICAS_VARIABLE, REPLICA_FOLDERS_VARIABLE)
    for name in (FOLDER_VARIABLE, ENGINE_ID_VARIABLE, *told):
        monkeypatch.setenv(name, "")  # so that what the test sets is taken back
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_LLMPRISM_MODE", "sentinel")
    monkeypatch.setattr(launch, "_minted_id", "")
    return one


def test_a_launch_begins_the_run_before_the_cores_start(runs: Runs, vllm: Any) -> None:
    begun_before: list[int] = []
    wrapped = launch.wrap_launch(lambda *_args: begun_before.append(len(runs.begun)))
    wrapped(vllm.make_config(local_world_size=2), "executor", True, "addresses")
    assert begun_before == [1]
    about = runs.begun[0]
    assert (about["name"], about["model"], about["ranks"]) == ("vllm", "tiny", 2)


@pytest.mark.parametrize(
    ("name", "expected"), [("tiny", "tiny"), (["one", "two"], "one"), ([], "weights"), (None, "weights")]
)
def test_the_model_is_named_as_it_is_served(runs: Runs, vllm: Any, name: Any, expected: str) -> None:
    config = vllm.make_config()
    config.model_config = SimpleNamespace(served_model_name=name, model="weights")
    launch.begin_launch(config)
    assert runs.begun[0]["model"] == expected


def test_where_ray_places_the_ranks_nobody_says_how_many_are_here(runs: Runs, vllm: Any) -> None:
    launch.begin_launch(vllm.make_config(distributed_executor_backend="ray"))
    assert runs.begun[0]["ranks"] is None


def test_a_launched_core_joins(
    runs: Runs, vllm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / RUN_FILE).touch()
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    launch.enter_core(vllm.make_config())
    assert runs.joined == ["engine-core"]
    assert runs.begun == []


def test_a_core_whose_run_is_gone_begins_its_own(
    runs: Runs, vllm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    launch.enter_core(vllm.make_config())
    assert len(runs.begun) == 1
    assert runs.joined == []


@pytest.mark.parametrize(
    ("launched", "begun"),
    [((os.getppid, "sentinel"), 0), ((os.getppid, "off"), 1), ((os.getpid, "sentinel"), 1)],
)
def test_a_core_whose_launcher_could_not_begin_tries_and_says_nothing_again(
    runs: Runs, vllm: Any, monkeypatch: pytest.MonkeyPatch, launched: Any, begun: int
) -> None:
    launcher, mode = launched
    monkeypatch.setenv(LAUNCHER_VARIABLE, str(launcher()))
    monkeypatch.setenv("OTEL_LLMPRISM_MODE", mode)
    launch.enter_core(vllm.make_config())
    assert len(runs.begun) == begun
    assert len(runs.joined) == 1 - begun


def test_a_second_engine_in_one_process_has_a_run_of_its_own(
    runs: Runs, vllm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch.enter_core(vllm.make_config())
    (tmp_path / RUN_FILE).touch()
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))  # as begin_run leaves it
    launch.enter_core(vllm.make_config())
    assert [about["engine_id"] for about in runs.begun] == ["minted-0", "minted-1"]


def test_an_id_that_the_user_preset_is_kept(runs: Runs, vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_ID_VARIABLE, "theirs")
    for _ in range(2):
        launch.begin_launch(vllm.make_config())
    assert [about["engine_id"] for about in runs.begun] == ["theirs", "theirs"]


def test_each_replica_begins_a_run_under_its_own_id(runs: Runs, vllm: Any) -> None:
    launch.begin_launch(vllm.make_config(data_parallel_size=2))
    assert runs.begun == []
    base = os.environ[ENGINE_ID_VARIABLE]
    for index in range(2):
        os.environ[ENGINE_ID_VARIABLE] = base  # each in a process of its own
        # What vLLM makes of a replica's configuration before its core begins.
        launch.enter_core(vllm.make_config(data_parallel_size=1, data_parallel_index=index))
    assert [about["engine_id"] for about in runs.begun] == [f"{base}/dp0", f"{base}/dp1"]


def test_replicas_of_this_node_join_runs_that_the_launching_process_began(
    runs: Runs, vllm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENGINE_ID_VARIABLE, "pair")
    started: list[str] = []
    closed: list[str] = []

    def start(_name: str, _version: str, *, environment: dict[str, str], **_about: Any) -> Any:
        engine_id = environment[ENGINE_ID_VARIABLE]
        folder = tmp_path / engine_id.replace("/", "-")
        folder.mkdir(exist_ok=True)
        (folder / RUN_FILE).touch()
        environment[FOLDER_VARIABLE] = str(folder)
        started.append(engine_id)
        return SimpleNamespace(is_on=True, close=lambda: closed.append(engine_id))

    monkeypatch.setattr(launch, "start_engine_run", start)
    monkeypatch.setattr(launch, "_replica_runs", [])
    config = vllm.make_config(data_parallel_size=4, data_parallel_size_local=2, data_parallel_rank=2)
    launch.begin_launch(config)
    assert started == ["pair/dp2", "pair/dp3"]
    assert closed == []
    launch.enter_core(vllm.make_config(data_parallel_index=3))
    assert runs.joined == ["engine-core"]
    assert os.environ[FOLDER_VARIABLE] == str(tmp_path / "pair-dp3")
    assert os.environ[ENGINE_ID_VARIABLE] == "pair/dp3"
    monkeypatch.delenv(FOLDER_VARIABLE)
    launch.begin_launch(config)
    assert sorted(closed) == ["pair/dp2", "pair/dp3"]


def test_switched_off_replicas_leave_the_environment_alone(
    runs: Runs, vllm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_LLMPRISM_MODE", "off")
    launch.begin_launch(vllm.make_config(data_parallel_size=2))
    assert ENGINE_ID_VARIABLE not in os.environ


def test_a_configuration_of_another_shape_does_not_stop_the_launch(runs: Runs) -> None:
    assert launch.wrap_launch(lambda config: config)(None) is None


class Core:
    def __init__(self, vllm_config: Any, scheduler: Any) -> None:
        self.vllm_config, self.scheduler = vllm_config, scheduler
        self.model_executor = SimpleNamespace(is_sleeping=False)

    def shutdown(self) -> str:
        return "down"

    def sleep(self, level: int = 1) -> str:
        self.pause_scheduler()
        self.model_executor.is_sleeping = True
        return f"asleep {level}"

    def wake_up(self, tags: list[str] | None = None) -> str:
        self.model_executor.is_sleeping = bool(tags)
        if not tags:
            self.resume_scheduler()
        return "awake"

    def pause_scheduler(self) -> None:
        pass

    def resume_scheduler(self) -> None:
        pass

    def collective_rpc(self, method: Any) -> str:
        if method == "fail":
            raise RuntimeError("theirs")
        return f"did {method}"

    def execute_dummy_batch(self) -> None:
        pass


WRAPS = {
    "__init__": engine_core.wrap_init,
    "shutdown": engine_core.wrap_shutdown,
    "sleep": engine_core.wrap_sleep,
    "wake_up": engine_core.wrap_wake_up,
    "pause_scheduler": engine_core.wrap_pause,
    "resume_scheduler": engine_core.wrap_resume,
    "collective_rpc": engine_core.wrap_collective_rpc,
    "execute_dummy_batch": engine_core.wrap_dummy_batch,
}
HookedCore: Any = type("Core", (Core,), {name: wrap(vars(Core)[name]) for name, wrap in WRAPS.items()})


def test_a_core_ends_its_own_run_and_no_later_one(runs: Runs, vllm: Any) -> None:
    first = HookedCore(vllm.make_config(), None)
    second = HookedCore(vllm.make_config(), None)
    assert first.shutdown() == "down"
    assert runs.ended == 0
    second.shutdown()
    second.shutdown()
    assert runs.ended == 1


def test_a_sleep_is_one_pause_until_all_is_awake(runs: Runs, run: Any, vllm: Any) -> None:
    core = HookedCore(vllm.make_config(), vllm.Scheduler())
    assert core.sleep(level=2) == "asleep 2"
    assert core.wake_up(tags=["weights"]) == "awake"
    core.wake_up()
    pauses = run.list_rows(Kind.PAUSE)
    assert [int(row["reason"]) for row in pauses] == [Pause.SLEEP, Pause.SLEEP]
    assert int(pauses[0]["end_ns"]) <= int(pauses[1]["start_ns"])


def test_a_call_to_all_workers_is_a_pause_and_weights_say_so(runs: Runs, run: Any, vllm: Any) -> None:
    core = HookedCore(vllm.make_config(), vllm.Scheduler())
    assert core.collective_rpc("reload_weights") == "did reload_weights"
    with pytest.raises(RuntimeError, match="theirs"):
        core.collective_rpc("fail")
    assert [int(row["reason"]) for row in run.list_rows(Kind.PAUSE)] == [Pause.WEIGHTS, Pause.UNKNOWN]


def test_a_dummy_batch_is_a_step_without_requests(runs: Runs, run: Any, vllm: Any) -> None:
    core = HookedCore(vllm.make_config(), vllm.Scheduler())
    core.execute_dummy_batch()
    (row,) = run.list_rows(Kind.STEP_SCHEDULED)
    assert (int(row["kind"]), int(row["requests"])) == (StepKind.DUMMY, 0)
