from types import ModuleType

import pytest

from otel_llmprism.instrumentation.coexistence import (
    ProcessView,
    find_here,
    find_neighbours,
    is_out_of_reach,
)
from otel_llmprism.instrumentation.profiler_state import note_profiler_start, note_profiler_stop

AUTO = "/venv/site-packages/opentelemetry/instrumentation/auto_instrumentation"


def list_names(view: ProcessView) -> list[str]:
    return [neighbour.name for neighbour in find_neighbours(view)]


def test_a_process_alone_has_no_neighbour() -> None:
    view = ProcessView(
        {"PATH": "/bin", "LD_PRELOAD": " "}, ["python3", "-m", "vllm"], ["bash"], ["/lib/libc.so.6"]
    )
    assert find_neighbours(view) == []


@pytest.mark.parametrize(
    "view",
    [
        ProcessView({"NSYS_PROFILING_SESSION_ID": "7"}),
        ProcessView({}, parents=["python3", "nsys"]),
        ProcessView({"CUDA_INJECTION64_PATH": "/opt/nvidia/nsight-systems/libToolsInjection64.so"}),
        ProcessView({"LD_PRELOAD": "/opt/nsys/libToolsInjectionProxy64.so"}),
        ProcessView({}, libraries=["/opt/x/libToolsInjection64.so"]),
    ],
)
def test_nsight_systems_is_known_by_each_of_its_traces(view: ProcessView) -> None:
    assert list_names(view) == ["Nsight Systems"]


def test_nsight_compute_is_known_and_its_times_are_said_to_mean_nothing() -> None:
    (found,) = find_neighbours(ProcessView({}, parents=["ncu"]))
    assert found.name == "Nsight Compute"
    assert "OTEL_LLMPRISM_DISABLED" in found.mend
    assert list_names(ProcessView({"NV_NSIGHT_INJECTION_PORT_BASE": "1"})) == ["Nsight Compute"]


@pytest.mark.parametrize("name", ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD"])
def test_other_injected_libraries_are_named_and_left(name: str) -> None:
    (found,) = find_neighbours(ProcessView({name: "/opt/mine.so"}))
    assert (found.name, found.evidence) == ("injected library", f"{name}=/opt/mine.so")


def test_nccl_plugin_of_the_user_stays() -> None:
    (found,) = find_neighbours(ProcessView({"NCCL_PROFILER_PLUGIN": "inspector"}))
    assert "yours stays" in found.rule


@pytest.mark.parametrize(
    ("view", "name"),
    [
        (
            ProcessView({}, ["python", "-m", "vllm", "--otlp-traces-endpoint=http://c:4317"]),
            "the engine's own tracing",
        ),
        (
            ProcessView({}, ["vllm", "serve", "--otlp-traces-endpoint", "http://c"]),
            "the engine's own tracing",
        ),
        (ProcessView({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}), "vLLM's own tracing"),
        (ProcessView({}, ["python", "-m", "sglang.launch_server", "--enable-trace"]), "SGLang's own tracing"),
    ],
)
def test_engines_own_tracing_is_known_by_what_switches_it_on(view: ProcessView, name: str) -> None:
    assert list_names(view) == [name]


@pytest.mark.parametrize(
    ("arguments", "is_isolated"),
    [
        (["/usr/bin/python3.11", "-I", "serve.py"], True),
        (["python", "-sE", "-m", "vllm"], True),
        (["python", "-u", "serve.py", "-E"], False),
        (["python", "-m", "vllm", "-I"], False),
        (["vllm", "serve", "-E"], False),
        (["python", "--check-hash-based-pycs", "default"], False),
    ],
)
def test_python_that_reads_no_environment_is_known_by_its_own_flags(
    arguments: list[str], is_isolated: bool
) -> None:
    assert (list_names(ProcessView({}, arguments)) == ["isolated Python"]) is is_isolated


def test_child_that_lost_the_path_of_auto_instrumentation_is_out_of_reach() -> None:
    parent = ProcessView({"PYTHONPATH": f"{AUTO}:/app"})
    assert is_out_of_reach(ProcessView({"PYTHONPATH": "/app"}), parent)
    assert is_out_of_reach(ProcessView({}), parent)
    assert not is_out_of_reach(parent, parent)
    assert not is_out_of_reach(ProcessView({}), ProcessView({"PYTHONPATH": "/app"}))


def test_provider_and_tracing_of_others_are_seen_from_inside() -> None:
    trace = ModuleType("opentelemetry.trace")
    assert find_here({"opentelemetry.trace": trace}) == []
    trace._TRACER_PROVIDER = object()  # type: ignore[attr-defined]
    lens = ModuleType("nemo.lens")
    names = [found.name for found in find_here({"opentelemetry.trace": trace, "nemo.lens": lens})]
    assert names == ["a TracerProvider", "Megatron's own tracing"]


def test_running_profiler_is_seen_from_inside_while_it_runs() -> None:
    class Profiler:
        pass

    profiler = Profiler()
    note_profiler_start(profiler)
    assert [found.name for found in find_here({})] == ["torch.profiler"]
    note_profiler_stop(profiler)
    assert find_here({}) == []
