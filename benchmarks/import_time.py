# How long the import of the instrumentation takes in the user's process, and what it brings along.
import argparse
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "import_time.md"
MODULES = (
    "otel_llmprism.instrumentation.entry_points",
    "otel_llmprism.instrumentation.engine_run",
    "otel_llmprism.instrumentation.rank_records",
)
REACH_MS = 50
HEAVY = ("torch", "numpy", "grpc", "opentelemetry")
_SCRIPT = """
import sys, time
began, began_cpu = time.perf_counter_ns(), time.process_time_ns()
import {module}
took, took_cpu = time.perf_counter_ns() - began, time.process_time_ns() - began_cpu
print(took, took_cpu, *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args(arguments)
    rows = [format_row(module, *measure(module, options.rounds)) for module in MODULES]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    table = f"""# Import of the instrumentation

Fresh processes, {options.rounds} rounds, bytecode compiled, other work on the machine.
Machine: {machine}. Command: `make bench-import`.

| module | wall, from to | median | CPU, median | heavy modules | reach |
|---|---|---|---|---|---|
""" + "".join(rows)
    print(table)
    if options.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(table, encoding="utf-8")
    return 0


def measure(module: str, rounds: int) -> tuple[list[float], list[float], list[str]]:
    """Return wall and CPU times in ms, sorted, and the heavy packages that came along."""
    times, cpu_times, heavy = [], [], set()
    for _ in range(rounds):
        command = [sys.executable, "-c", _SCRIPT.format(module=module)]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        times.append(int(words[0]) / 1e6)
        cpu_times.append(int(words[1]) / 1e6)
        heavy |= set(HEAVY) & set(words[2:])
    return sorted(times), sorted(cpu_times), sorted(heavy)


def format_row(module: str, times_ms: list[float], cpu_ms: list[float], heavy: list[str]) -> str:
    median, cpu = statistics.median(times_ms), statistics.median(cpu_ms)
    return (
        f"| `{module}` | {times_ms[0]:.1f} to {times_ms[-1]:.1f} ms | {median:.1f} ms | {cpu:.1f} ms "
        f"| {', '.join(heavy) or 'none'} | {REACH_MS} ms |\n"
    )


if __name__ == "__main__":
    sys.exit(main())
