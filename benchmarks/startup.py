# What our code takes of an engine's start: entry points in each process, begin of the run where the engine
# is started, join in its child. Pairs of fresh processes under `opentelemetry-instrument`, with and without.
#   make bench-startup
import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "startup.md"
TARGET_S = 0.2
LAUNCHER = str(Path(sys.executable).parent / "opentelemetry-instrument")
_PARTS = """
import os, time
began = time.perf_counter_ns()
from otel_llmprism.instrumentation import process_run
from otel_llmprism.instrumentation.frameworks import collectives, torch, vllm
imported = time.perf_counter_ns()
run = process_run.begin_run("mini", "0", model="m", ranks=1)
begun = time.perf_counter_ns()
process_run._forget_after_fork()
before = time.perf_counter_ns()
process_run.join_run("core")
joined = time.perf_counter_ns()
print((imported - began) / 1e6, (begun - imported) / 1e6, (joined - before) / 1e6)
run.close(); process_run.end_run()
"""
_QUIET = {
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_LLMPRISM_LEDGER": "local",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    added_ms, parts = [], []
    for number in range(options.rounds):
        taken = {}
        for is_off in (number % 2 == 0, number % 2 == 1):
            taken[is_off] = time_empty_process({"OTEL_LLMPRISM_DISABLED": "true"} if is_off else {})
        added_ms.append(taken[False] - taken[True])
        parts.append(time_parts())
    text = format_report(added_ms, parts)
    print(text)
    if options.write:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


def time_empty_process(variables: Mapping[str, str]) -> float:
    """Return the CPU time in ms of a program that does nothing, under the launcher."""
    # CPU, not wall: a start does nothing but compute, and other programs share the cores.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [LAUNCHER, sys.executable, "-c", "pass"]
    subprocess.run(command, env={**os.environ, **_QUIET, **variables}, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def time_parts() -> list[float]:
    """Return ms for import, begin and join in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="bench-startup-") as folder:
        places = {"OTEL_LLMPRISM_RUNTIME_DIR": folder, "OTEL_LLMPRISM_LEDGER_DIR": folder}
        environment = {**os.environ, **_QUIET, **places, "OTEL_LLMPRISM_MODE": "sentinel"}
        command = [sys.executable, "-c", _PARTS]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        time.sleep(0.3)  # the exporter ends before its folder goes
        return [float(word) for word in done.stdout.split()]


def format_report(added_ms: list[float], parts: list[list[float]]) -> str:
    entry = statistics.median(added_ms)
    imported, begin, join = (statistics.median(column) for column in zip(*parts, strict=True))
    whole_s = (2 * (entry + imported) + begin + join) / 1e3
    return f"""# What it adds to the start of an engine

Fresh processes, {len(added_ms)} rounds, medians. The entry points: `opentelemetry-instrument python -c pass`
in alternating pairs, with `OTEL_LLMPRISM_DISABLED=true` and without, in CPU time; the rest in wall time.
On the way of an engine's start lie the entry points of two processes, one begin (run folder, ring of
4 MiB, start of the exporter) and one join. The exporter itself starts beside, at a lower priority.

| part | ms |
|---|---|
| entry points, in each process | {entry:.1f} |
| import of recorders and hooks, in each process that records | {imported:.1f} |
| begin of the run | {begin:.1f} |
| join of a child | {join:.1f} |
| **together, two processes** | **{whole_s * 1e3:.0f}** (to reach: {TARGET_S * 1e3:.0f}) |

Machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}.
Command: `make bench-startup`.
"""


if __name__ == "__main__":
    sys.exit(main())
