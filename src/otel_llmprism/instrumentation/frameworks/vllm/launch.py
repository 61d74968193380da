# Where a run of vLLM begins: in the process that launches engine cores, before they start, or in the engine
# core itself where nobody launched it. With several data-parallel replicas each core begins its own.
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from otel_llmprism.instrumentation.engine_run import (
    ENGINE_ID_VARIABLE,
    FOLDER_VARIABLE,
    EngineRun,
    start_engine_run,
)
from otel_llmprism.instrumentation.process_run import begin_run, current_run, end_run, join_run
from otel_llmprism.instrumentation.quiet import quiet
from otel_llmprism.instrumentation.switches import read_switches
from otel_llmprism.native.run_folder import RUN_FILE

# Tells a core that it is one of several replicas: by then vLLM may have made its own configuration say one.
REPLICAS_VARIABLE = "OTEL_LLMPRISM_REPLICAS"
# Where the replicas of this node join, `index=folder` separated by `;`.
REPLICA_FOLDERS_VARIABLE = "OTEL_LLMPRISM_REPLICA_FOLDERS"
LAUNCHER_VARIABLE = "OTEL_LLMPRISM_LAUNCHER"  # pid of the process that launches cores and begins their run
_minted_id = ""  # of the last engine that this process began: the next one is another engine


class _About(TypedDict):
    model: str
    operation: str
    ranks: int | None


_replica_runs: list[EngineRun] = []


def wrap_launch(original: Callable[..., Any]) -> Callable[..., Any]:
    """Begin a run before engine cores are started."""

    @functools.wraps(original)
    def launch_core_engines(vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        begin_launch(vllm_config)
        return original(vllm_config, *args, **kwargs)

    return launch_core_engines


@quiet("vllm", None)
def begin_launch(vllm_config: Any) -> None:
    """Begin the run of the engine that this process launches, or leave that to its replicas."""
    parallel = vllm_config.parallel_config
    replicas = int(getattr(parallel, "data_parallel_size", 1))
    os.environ[LAUNCHER_VARIABLE] = str(os.getpid())
    os.environ[REPLICAS_VARIABLE] = str(replicas)
    if replicas <= 1:
        begin_vllm_run(vllm_config)
        return
    end_run()
    os.environ.pop(FOLDER_VARIABLE, None)
    is_preset = _is_id_preset()
    if not is_preset and read_switches(os.environ).is_recording:
        os.environ[ENGINE_ID_VARIABLE] = f"vllm-{os.urandom(6).hex()}"
    _remember_id(is_preset=is_preset)
    _begin_replicas(vllm_config)


@quiet("vllm", None)
def enter_core(vllm_config: Any) -> EngineRun | None:
    """Return the run that a new engine core belongs to: the one it was launched for, else one of its own."""
    if read_replicas() > 1:
        return _enter_replica(vllm_config)
    run = current_run()
    begun_here = run is not None and run.description and run.description.starter_pid == os.getpid()
    folder = os.environ.get(FOLDER_VARIABLE, "")
    if not begun_here and folder and (Path(folder) / RUN_FILE).exists():
        return join_run("engine-core")
    if not begun_here and not folder and _has_launcher_failed():
        return join_run("engine-core")  # nothing to join; it was said by who launched us
    return begin_vllm_run(vllm_config)


def _has_launcher_failed() -> bool:
    """Tell whether our parent launched us, wanted to begin a run, and could not."""
    is_launched = os.environ.get(LAUNCHER_VARIABLE) == str(os.getppid())
    return is_launched and read_switches(os.environ).is_recording


def read_replicas() -> int:
    """Return how many data-parallel replicas the launching process told of; 1 when nothing."""
    text = os.environ.get(REPLICAS_VARIABLE, "")
    return int(text) if text.isdecimal() else 1


def begin_vllm_run(vllm_config: Any) -> EngineRun | None:
    """Begin a run that says which vLLM it is and what it serves."""
    is_preset = _is_id_preset()
    run = begin_run("vllm", _read_version(), **_describe(vllm_config))
    _remember_id(is_preset=is_preset)
    return run


def _is_id_preset() -> bool:
    # What we put there for our children is no wish of the user's.
    if _minted_id and os.environ.get(ENGINE_ID_VARIABLE) == _minted_id:
        del os.environ[ENGINE_ID_VARIABLE]
    return bool(os.environ.get(ENGINE_ID_VARIABLE, "").strip())


def _remember_id(*, is_preset: bool) -> None:
    global _minted_id  # noqa: PLW0603  one process, one environment
    _minted_id = "" if is_preset else os.environ.get(ENGINE_ID_VARIABLE, "")


def _begin_replicas(vllm_config: Any) -> None:
    # Here, not in the cores: an exporter is the child of who begins, and vLLM kills a core with its children.
    while _replica_runs:
        _replica_runs.pop().close()
    folders, parallel = {}, vllm_config.parallel_config
    first = int(getattr(parallel, "data_parallel_rank", 0) or 0)
    for index in range(first, first + int(getattr(parallel, "data_parallel_size_local", 0) or 0)):
        environment = dict(os.environ)
        environment[ENGINE_ID_VARIABLE] = f"{os.environ.get(ENGINE_ID_VARIABLE, '')}/dp{index}"
        run = start_engine_run("vllm", _read_version(), **_describe(vllm_config), environment=environment)
        if run.is_on:
            _replica_runs.append(run)  # kept open: an exporter ends with the last ring
            folders[index] = environment[FOLDER_VARIABLE]
    os.environ[REPLICA_FOLDERS_VARIABLE] = ";".join(f"{index}={path}" for index, path in folders.items())


def _enter_replica(vllm_config: Any) -> EngineRun | None:
    parallel = vllm_config.parallel_config
    index = getattr(parallel, "data_parallel_index", None)
    if index is None:
        index = parallel.data_parallel_rank
    base = os.environ.get(ENGINE_ID_VARIABLE, "").strip() or f"vllm-{os.urandom(6).hex()}"
    os.environ[ENGINE_ID_VARIABLE] = f"{base}/dp{index}"
    for item in os.environ.get(REPLICA_FOLDERS_VARIABLE, "").split(";"):
        its_index, _, folder = item.partition("=")
        if its_index == str(index) and (Path(folder) / RUN_FILE).exists():
            os.environ[FOLDER_VARIABLE] = folder
            return join_run("engine-core")
    return begin_vllm_run(vllm_config)


def _read_version() -> str:
    return str(getattr(sys.modules.get("vllm"), "__version__", ""))


def _describe(vllm_config: Any) -> _About:
    return {
        "model": _read_model_name(vllm_config.model_config),
        "operation": _tell_operation(vllm_config.model_config),
        "ranks": _count_local_ranks(vllm_config.parallel_config),
    }


def _read_model_name(model_config: Any) -> str:
    names: Any = getattr(model_config, "served_model_name", None) or getattr(model_config, "model", "")
    return str(names if isinstance(names, str) else next(iter(names), ""))


def _tell_operation(model_config: Any) -> str:
    return "embeddings" if getattr(model_config, "runner_type", "") == "pooling" else "text_completion"


def _count_local_ranks(parallel: Any) -> int | None:
    if getattr(parallel, "distributed_executor_backend", None) == "ray":
        return None  # Ray decides where they run
    ranks = getattr(parallel, "local_world_size", None) or getattr(parallel, "world_size", None)
    return int(ranks) if ranks else None
