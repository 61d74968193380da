# Starts the exporter process beside the engine: one per run and node. Cheap and safe in a process that
# holds a GPU: no fork of Python code, no thread.
import os
import sys
from collections.abc import Mapping
from pathlib import Path

MODULE = "otel_llmprism.service.exporter_process"
# What would pull a profiler or an auto-instrumentation into the exporter.
_NOT_PASSED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN", "LD_PRELOAD")
_AUTO_INSTRUMENTATION = "opentelemetry/instrumentation/auto_instrumentation"


def start_exporter(folder: Path, environment: Mapping[str, str]) -> int:
    """Start it for this run folder and return its pid; OSError when that fails.

    A second one for the same folder finds the lock taken and ends at once.
    """
    if not sys.executable:
        raise OSError("this Python does not know its own executable: start the exporter process by hand")
    arguments = [sys.executable, "-m", MODULE, str(folder)]
    return os.posix_spawn(
        sys.executable,
        arguments,
        build_exporter_environment(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ],
        # From its first moment, not only once it runs: whoever ends the group of a short-lived engine would
        # end its exporter among its imports.
        setsid=True,
        setsigmask=(),  # woken, it is started by the control thread, which blocks what must end an exporter
    )


def build_exporter_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the engine's environment without what is meant for the engine alone."""
    passed = {name: value for name, value in environment.items() if name not in _NOT_PASSED}
    # The engine may live by PYTHONPATH or sys.path alone; the exporter must find the same package.
    own_root = str(Path(__file__).parents[2])
    folders = [part for part in passed.get("PYTHONPATH", "").split(os.pathsep) if part]
    folders = [part for part in folders if not part.rstrip("/").endswith(_AUTO_INSTRUMENTATION)]
    passed["PYTHONPATH"] = os.pathsep.join([*folders, *([] if own_root in folders else [own_root])])
    return passed
