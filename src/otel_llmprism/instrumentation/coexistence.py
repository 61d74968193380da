# Who else watches or steers a process: its environment, command line, parents and libraries in; what is there
# and what we do about it out. Imports and loads nothing, changes nothing.
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

from otel_llmprism.instrumentation.profiler_state import profiler_state

INJECTION_LIBRARY = "libToolsInjection"  # what Nsight Systems loads into a process
_NSIGHT_SYSTEMS = ("nsys", "nsys-launcher", "nsight-sys")
_NSIGHT_COMPUTE = ("ncu", "nv-nsight-cu-cli", "nv-nsight-cu")
_AUTO_INSTRUMENTATION = "opentelemetry/instrumentation/auto_instrumentation"
_VLLM_TRACES, _SGLANG_TRACES = "--otlp-traces-endpoint", "--enable-trace"
_TRACES_VARIABLE = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


class Neighbour(NamedTuple):
    """One that shares the process with us: how we know, and what follows."""

    name: str
    evidence: str
    rule: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class ProcessView:
    """What can be seen of a process, from inside or through /proc."""

    environment: Mapping[str, str]
    arguments: Sequence[str] = ()
    parents: Sequence[str] = ()  # command names, nearest first
    libraries: Iterable[str] = ()  # paths of what is mapped into it


def find_neighbours(view: ProcessView) -> list[Neighbour]:
    """Return everyone who is there, in the order of the rules below."""
    finders = (
        find_nsight_systems,
        find_nsight_compute,
        find_injections,
        find_nccl_plugin,
        find_engine_tracing,
        find_python_without_environment,
    )
    return [neighbour for find in finders for neighbour in find(view)]


def find_nsight_systems(view: ProcessView) -> list[Neighbour]:
    evidence = [f"{name} is set" for name in sorted(view.environment) if name.startswith(("NSYS_", "QUADD_"))]
    evidence += [f"{name} runs it" for name in view.parents if name in _NSIGHT_SYSTEMS]
    evidence += [f"{path} is loaded" for path in view.libraries if INJECTION_LIBRARY in path]
    evidence += [f"{name} names it" for name, value in _list_injections(view) if _is_nsight(value)]
    if not evidence:
        return []
    rule = "it keeps the GPU and NVTX to itself; our hooks in Python go on, and its time shows in the steps"
    return [Neighbour("Nsight Systems", evidence[0], rule)]


def find_nsight_compute(view: ProcessView) -> list[Neighbour]:
    evidence = [f"{name} runs it" for name in view.parents if name in _NSIGHT_COMPUTE]
    evidence += [
        f"{name} is set" for name in sorted(view.environment) if name.startswith("NV_NSIGHT_INJECTION")
    ]
    if not evidence:
        return []
    rule = "kernels are replayed, so times of steps mean nothing; our hooks go on and change nothing of it"
    return [Neighbour("Nsight Compute", evidence[0], rule, "set OTEL_LLMPRISM_DISABLED=true in such a run")]


def find_injections(view: ProcessView) -> list[Neighbour]:
    """Other libraries that CUDA, NVTX or the loader bring in."""
    rule = "it is left as it is, and kept out of our exporter process"
    return [
        Neighbour("injected library", f"{name}={value}", rule)
        for name, value in _list_injections(view)
        if not _is_nsight(value)
    ]


def find_nccl_plugin(view: ProcessView) -> list[Neighbour]:
    plugin = view.environment.get("NCCL_PROFILER_PLUGIN", "").strip()
    if not plugin:
        return []
    rule = "NCCL has room for one, and yours stays; collectives are told by the hooks in Python"
    return [Neighbour("NCCL profiler plugin", f"NCCL_PROFILER_PLUGIN={plugin}", rule)]


def find_engine_tracing(view: ProcessView) -> list[Neighbour]:
    """Spans that vLLM or SGLang make themselves."""
    kept = "its spans are kept as they are, and join ours by the trace"
    found = []
    if any(word.partition("=")[0] == _VLLM_TRACES for word in view.arguments):
        found.append(Neighbour("the engine's own tracing", f"started with {_VLLM_TRACES}", kept))
    if view.environment.get(_TRACES_VARIABLE):
        mend = "set OTEL_EXPORTER_OTLP_ENDPOINT instead, unless you want vLLM's own spans of loading too"
        found.append(Neighbour("vLLM's own tracing", f"{_TRACES_VARIABLE} switches it on", kept, mend))
    if _SGLANG_TRACES in view.arguments:
        found.append(Neighbour("SGLang's own tracing", f"started with {_SGLANG_TRACES}", kept))
    return found


def find_python_without_environment(view: ProcessView) -> list[Neighbour]:
    """An interpreter that reads no PYTHONPATH: auto-instrumentation does not reach it."""
    flags = [
        word for word in _list_flags(view.arguments) if not word.startswith("--") and set(word) & set("EI")
    ]
    if not flags:
        return []
    rule = "auto-instrumentation does not reach it; vLLM's and SGLang's plugin entry points do"
    return [Neighbour("isolated Python", f"started with {flags[0]}", rule)]


def is_out_of_reach(child: ProcessView, parent: ProcessView) -> bool:
    """Tell whether a child lost the PYTHONPATH by which auto-instrumentation comes to it."""
    had = _AUTO_INSTRUMENTATION in parent.environment.get("PYTHONPATH", "")
    return had and _AUTO_INSTRUMENTATION not in child.environment.get("PYTHONPATH", "")


def find_here(modules: Mapping[str, ModuleType] | None = None) -> list[Neighbour]:
    """Return those that can be seen only from inside the process: providers and profilers."""
    loaded = sys.modules if modules is None else modules
    found = []
    if provider := getattr(loaded.get("opentelemetry.trace"), "_TRACER_PROVIDER", None):
        rule = "it is left alone: our spans leave through the exporter process"
        found.append(Neighbour("a TracerProvider", type(provider).__name__, rule))
    if "nemo.lens" in loaded:
        rule = "its spans are kept; ours have their own trace a step"
        found.append(Neighbour("Megatron's own tracing", "nemo.lens is imported", rule))
    if (state := profiler_state()).is_running:
        rule = "we hold no subscription to the GPU, and take none before it has stopped"
        found.append(Neighbour("torch.profiler", f"{state.running} running", rule))
    return found


def _list_injections(view: ProcessView) -> list[tuple[str, str]]:
    names = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD")
    return [(name, value) for name in names if (value := view.environment.get(name, "").strip())]


def _is_nsight(value: str) -> bool:
    return any(word in value.lower() for word in ("nsight", "nsys", "libtoolsinjection"))


def _list_flags(arguments: Sequence[str]) -> list[str]:
    """Return the interpreter's own options: what stands before the script, -m or -c."""
    if not arguments or "python" not in arguments[0].rpartition("/")[2]:
        return []
    flags = []
    for word in arguments[1:]:
        if not word.startswith("-") or word in {"-m", "-c", "-"}:
            break
        flags.append(word)
    return flags
