# The engines that a demo can run: real vLLM where it is installed, the mini engine everywhere. Each is a
# program that works for a while, sends its telemetry to an endpoint, and prints a JSON summary last.
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from otel_llmprism.config.errors import ConfigError

# Enough work that requests share steps and steps take milliseconds, on two cores.
_MINI_LOAD = ("--rate", "20", "--width", "128", "--layers", "4", "--output", "48")
_TIDY_S = 60.0  # vLLM's processes and the exporter end
_ONE_FAULT = "otel_llmprism.testing.evaluation.one_fault"
_LEARNED_SHARE = 0.75  # of the time, before a fault strikes
# What vLLM on one machine cannot suffer: its ranks talk through memory, and none of them is ours to slow.
_MINI_FAULTS = ("operator", "slow_rank", "link")


@dataclass(frozen=True, slots=True)
class DemoEngine:
    """Which engine, with which arguments; `title` is what people read."""

    title: str
    service: str
    command: tuple[str, ...]
    fault: str = "none"
    trigger: Path | None = None  # a file that says: the engine is known well enough to break something


def choose_engine(
    name: str, python: Path | None, folder: Path, seconds: float, fault: str = "none"
) -> DemoEngine:
    """Return the engine of that name; `auto`: vLLM when `python` or this Python has it, else the mini one.

    Raises ConfigError when vLLM is asked for and is not there, or cannot suffer that fault.
    """
    if name == "vllm" and fault in _MINI_FAULTS:
        raise ConfigError(f"--engine vllm: --fault {fault} needs the mini engine; take --engine mini")
    found = python or (Path(sys.executable) if find_spec("vllm") else None)
    if name == "vllm" and found is None:
        raise ConfigError(
            "--engine vllm: vLLM is not installed here; give --engine-python PATH, the Python that has it, "
            "or take --engine mini"
        )
    trigger = folder / "engine-is-known"
    begin: tuple[str, ...] = ()
    if fault != "none":
        begin = ("--fault", fault, "--begin", f"{seconds * _LEARNED_SHARE:g}", "--trigger", str(trigger))
    if name == "mini" or found is None or fault in _MINI_FAULTS:
        module = ("-m", _ONE_FAULT if begin else "otel_llmprism.testing.mini_engine")
        words = (*begin, "--folder", str(folder / "engine")) if begin else ("--ranks", "2", *_MINI_LOAD)
        mini = (sys.executable, *module, "--seconds", str(seconds), *words)
        return DemoEngine("the mini engine", "mini-engine", mini, fault, trigger)
    words = (*begin, "--python", str(found), "--folder", str(folder / "vllm"))
    program = (sys.executable, "-m", "otel_llmprism.testing.engine_demo", "--seconds", str(seconds))
    return DemoEngine("vLLM", "vllm", (*program, *words), fault, trigger)


def run_engine(
    engine: DemoEngine, folder: Path, grpc_port: int, progress: TextIO, watch: Callable[[], None]
) -> dict[str, Any]:
    """Run the engine to its end, calling `watch` about once a second; return the summary it prints last."""
    # Under the user's own OTEL_* settings the demo would send to their backend.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment = {
        **kept,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{grpc_port}",
        "OTEL_SERVICE_NAME": engine.service,
        "OTEL_LLMPRISM_LEDGER_DIR": str(folder / "ledger"),
    }
    log_path = folder / "engine.log"
    with log_path.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            engine.command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            _await_end(process, engine, log_path, progress, watch)
        finally:
            process.terminate()
            output, _ = process.communicate(timeout=_TIDY_S)
    lines = output.strip().splitlines()
    if process.returncode or not lines:
        raise RuntimeError(f"{engine.title} ended with {process.returncode}; its log is {log_path}")
    summary: dict[str, Any] = json.loads(lines[-1])
    return summary


def _await_end(
    process: subprocess.Popen[str],
    engine: DemoEngine,
    log_path: Path,
    progress: TextIO,
    watch: Callable[[], None],
) -> None:
    while process.poll() is None:
        watch()
        if progress.isatty():
            is_serving = "the load begins" in log_path.read_text(encoding="utf-8")
            doing = "is working" if is_serving or engine.service != "vllm" else "is starting (up to a minute)"
            progress.write(f"\r\x1b[K{engine.title[:1].upper()}{engine.title[1:]} {doing} ... ")
            progress.flush()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
    if progress.isatty():
        progress.write("\r\x1b[K")
