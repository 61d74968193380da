# Where SGLang starts its processes: the run begins there, so that all of them can join it by the environment.
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from otel_llmprism.instrumentation.engine_run import ENGINE_ID_VARIABLE, FOLDER_VARIABLE, EngineRun
from otel_llmprism.instrumentation.process_run import begin_run, end_run, join_run
from otel_llmprism.instrumentation.quiet import quiet
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.switches import read_switches

FRONT_VARIABLE = "OTEL_LLMPRISM_SGLANG_FRONT"  # set: the front end in Python books arrivals, of one engine
_RUST_VARIABLE = "SGLANG_RUST_SERVER"


def wrap_launch_method(original: Callable[..., Any]) -> Callable[..., Any]:
    """Begin the run of the engine that is launched; `original` is a class method's function."""

    @functools.wraps(original)
    def _launch_subprocesses(cls: Any, server_args: Any, *args: Any, **kwargs: Any) -> Any:
        begin_launch(server_args)
        return original(cls, server_args, *args, **kwargs)

    return _launch_subprocesses


def wrap_launch_function(original: Callable[..., Any]) -> Callable[..., Any]:
    """As wrap_launch_method, for the function that it was before."""

    @functools.wraps(original)
    def _launch_subprocesses(server_args: Any, *args: Any, **kwargs: Any) -> Any:
        begin_launch(server_args)
        return original(server_args, *args, **kwargs)

    return _launch_subprocesses


@quiet("sglang", None)
def begin_launch(server_args: Any) -> None:
    """Begin the run, or leave that to the replicas where there are several: each is an engine."""
    os.environ.pop(FRONT_VARIABLE, None)
    if count_engines(server_args) > 1:
        end_run()
        os.environ.pop(FOLDER_VARIABLE, None)
        if read_switches(os.environ).is_recording:
            os.environ.setdefault(ENGINE_ID_VARIABLE, f"sglang-{os.urandom(6).hex()}")
        return
    # Before the run begins: the environment is what the children read.
    if not os.environ.get(_RUST_VARIABLE):
        os.environ[FRONT_VARIABLE] = "1"
    if begin_sglang_run(server_args) is None:
        os.environ.pop(FRONT_VARIABLE, None)


def enter_scheduler(server_args: Any, place: RankPlace) -> EngineRun | None:
    """Return the run of the engine that a scheduler belongs to; of a replica, its first rank begins it."""
    if count_engines(server_args) <= 1:
        run = join_run("scheduler")
        is_alone = _count(server_args, "tp_size") * _count(server_args, "pp_size") == 1
        if run is not None or os.environ.get(FOLDER_VARIABLE) or not is_alone:
            return run
        return begin_sglang_run(server_args)  # whoever launched it did not tell: it is an engine by itself
    if place.tp or place.pp or place.cp:
        return None
    base = os.environ.get(ENGINE_ID_VARIABLE, "").strip() or f"sglang-{os.urandom(6).hex()}"
    os.environ[ENGINE_ID_VARIABLE] = f"{base}/dp{place.dp}"
    return begin_sglang_run(server_args, ranks=1)


def count_engines(server_args: Any) -> int:
    """Return how many schedulers plan on their own: replicas, and groups of attention data parallelism."""
    return _count(server_args, "dp_size") * _count(server_args, "attn_dp_size")


def begin_sglang_run(server_args: Any, ranks: int | None = None) -> EngineRun | None:
    """Begin a run that says which SGLang it is and what it serves."""
    nodes = _count(server_args, "nnodes")
    local = _count(server_args, "tp_size") * _count(server_args, "pp_size") // nodes
    return begin_run(
        "sglang",
        str(getattr(sys.modules.get("sglang"), "__version__", "")),
        model=str(getattr(server_args, "served_model_name", "") or getattr(server_args, "model_path", "")),
        operation="embeddings" if getattr(server_args, "is_embedding", False) else "text_completion",
        ranks=max(local, 1) if ranks is None else ranks,
    )


def _count(server_args: Any, name: str) -> int:
    return max(int(getattr(server_args, name, 1) or 1), 1)
