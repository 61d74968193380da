# What our hooks take of vLLM's engine thread in each step, and what they hold of its memory: measured inside
# a real EngineCore under load, batches up to 256. Needs `make engines`.
#   make bench-vllm-hooks
import argparse
import datetime as dt
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from build_engines import ENGINE, TORCH, find_engines_folder

from otel_llmprism.testing.engine_hook_probe import PATH_VARIABLE
from otel_llmprism.testing.engine_load import LoadPlan, build_asks, send_load
from otel_llmprism.testing.engine_server import EngineServer, ServerShape
from otel_llmprism.testing.otlp_server import OtlpServer
from otel_llmprism.testing.programs import Programs

RESULTS = Path(__file__).parent / "results" / "vllm_hooks.md"
BATCHES = ((1, 63), (64, 223), (224, 256))
MOVES = ((0, 0), (1, 2), (3, 1000))  # requests that came, ended or were preempted
# Answers of a few hundred tokens, as people ask for; and a KV cache that holds them all.
SHAPE = ServerShape(
    "hooks", ("--max-model-len", "1024", "--max-num-seqs", "256", "--max-num-batched-tokens", "1024")
)
TARGET_US, TARGET_MIB = 20, 16
_MEMORY_SCRIPT = """
import re, sys
def read_private():
    return sum(map(int, re.findall(r"Private_\\w+: +(\\d+)", open("/proc/self/smaps_rollup").read())))
import asyncio, contextlib, dataclasses, functools, hashlib, json, logging, mmap, struct, threading, typing
before = read_private()
from otel_llmprism.instrumentation import control_server, entry_points, process_run
from otel_llmprism.instrumentation.frameworks import collectives, torch, transformers, vllm
print((read_private() - before) / 1024)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=768)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    found = run_engine(options.requests, {})
    heap = run_engine(options.requests // 2, {"PYTHONTRACEMALLOC": "1"})["heap_bytes"]
    text = format_report(found, heap / 2**20, measure_import_mib())
    print(text)
    if options.write:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


def run_engine(requests: int, extra: dict[str, str]) -> dict[str, Any]:
    """Return what the probe wrote: (requests, ns of ours) of each step, calls and ns of each place."""
    with tempfile.TemporaryDirectory(prefix="bench-hooks-") as name, OtlpServer() as sink:
        folder = Path(name)
        with Programs(folder) as programs:
            probe = {PATH_VARIABLE: str(folder / "probe"), "VLLM_PLUGINS": "llmprism,engine_hook_probe"}
            python = find_engines_folder() / "bin" / "python"
            endpoint = f"http://{sink.grpc_endpoint}"
            server = EngineServer(
                python, folder, SHAPE, otlp_endpoint=endpoint, environment={**probe, **extra}
            )
            server.start(programs)
            plan = LoadPlan(requests, 1, prompt_words=(16, 48), max_tokens=(200, 600))
            send_load(programs, server, build_asks(plan), concurrency=256)
            server.stop()
        written = [json.loads(path.read_text()) for path in folder.glob("probe.*") if path.suffix != ".new"]
    (found,) = [one for one in written if one["steps"]]
    return dict(found)


def measure_import_mib() -> float:
    """Return the private memory that importing our modules adds to a process that has the usual others."""
    done = subprocess.run([sys.executable, "-c", _MEMORY_SCRIPT], capture_output=True, text=True, check=True)
    return float(re.findall(r"[\d.]+", done.stdout)[0])


def format_report(found: dict[str, Any], heap_mib: float, import_mib: float) -> str:
    rows, steps = [], found["steps"]
    own = [empty_ns for count, _, _, empty_ns in steps if count >= BATCHES[-1][0]] or [0]
    own_us = statistics.median(own) / 1e3
    places = "\n".join(
        f"| `{name}` | {calls / len(steps):.2f} | {spent / calls / 1e3:.1f} |"
        for name, (calls, spent) in found["places"].items()
        if calls
    )
    for low, high in BATCHES:
        for fewest, most in (*MOVES, (0, 1000)):
            spent = sorted(
                ns for count, moves, ns, _ in steps if low <= count <= high and fewest <= moves <= most
            )
            if spent:
                p50, p99 = spent[len(spent) // 2] / 1e3, spent[len(spent) * 99 // 100] / 1e3
                is_all = (fewest, most) == (0, 1000)
                came = "**any**" if is_all else f"{fewest}" if fewest == most else f"{fewest} or more"
                came = "1 or 2" if (fewest, most) == (1, 2) else came
                reach = f"{TARGET_US}" if is_all and (low, high) == BATCHES[-1] else ""
                rows.append(f"| {low} to {high} | {came} | {len(spent)} | {p50:.1f} | {p99:.1f} | {reach} |")
    table = "\n".join(rows)
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return f"""# What the hooks take of vLLM's engine thread

Inside a real EngineCore (the worker is another process: rank records are not in it), mode sentinel, up to
256 streams at a time, answers of 200 to 600 tokens. A clock outside each wrapper of ours and one inside; the
sum of the differences over one step, with arrivals and ends that fall into it, the clocks' own cost included:
a wrapper that does nothing, round another method that vLLM calls once a step, measures {own_us:.1f} us (p50),
and each step has two places of ours or more.

| requests in the step | of them came or went | steps | p50 us | p99 us | reach, p50 |
|---|---|---|---|---|---|
{table}

| place | calls a step | mean us a call |
|---|---|---|
{places}

Memory in the engine's process, the ring apart: {heap_mib:.2f} MiB held by our code after the load
(tracemalloc), {import_mib:.1f} MiB for its modules; together **{heap_mib + import_mib:.1f} MiB** (to reach:
{TARGET_MIB}).

Machine: {os.cpu_count()} cores, {platform.machine()}, {platform.release()}.
Versions: {ENGINE}, {TORCH}, Python {platform.python_version()}. Command: `make bench-vllm-hooks` ({today}).
"""


if __name__ == "__main__":
    sys.exit(main())
