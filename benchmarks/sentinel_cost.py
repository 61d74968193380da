# What the sentinel costs the processor for each step: the core over made ledgers, in chunks of several sizes
# and step by step, with a fitted model; and how long a fit keeps the path from going on.
import argparse
import copy
import itertools
import os
import platform
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerBatch
from otel_llmprism.service.sentinel.core import CoreConfig, SentinelCore
from otel_llmprism.service.sentinel.engine_model import TrainJob
from otel_llmprism.service.sentinel.training import ProcessTrainer, SyncTrainer
from otel_llmprism.service.sentinel.wiring import build_parts
from otel_llmprism.service.sentinel.work import build_work, select_charted
from otel_llmprism.testing.made_ledger import MadeLedger

RESULTS = Path(__file__).parent / "results" / "sentinel_cost.md"
WARM_UP_S = 85.0
# Cycle of the made engine and what that makes of a chunk of half a second.
CYCLES_NS = (8e6, 2e6, 5e5, 6e4)
Timed = tuple[LedgerBatch, int]


def build_core() -> SentinelCore:
    numbers, parts = itertools.count(1), build_parts()
    return SentinelCore(CoreConfig(), parts, SyncTrainer(parts), Counters(), lambda: f"{next(numbers):032x}")


def warm_up() -> SentinelCore:
    """Return a core with a model and limits, fitted to an ordinary engine."""
    core = build_core()
    for batch, arrived_ns in MadeLedger(seconds=WARM_UP_S).list_batches():
        core.take(batch, arrived_ns)
        core.advance(arrived_ns)
    core.models.train = lambda blocked: None  # type: ignore[method-assign]  # noqa: ARG005  measured apart
    return core


def copy_core(core: SentinelCore) -> SentinelCore:
    """Return a core that knows the same; they share the counters, whose lock cannot be copied."""
    return copy.deepcopy(core, {id(core._counters): core._counters})  # noqa: SLF001


def measure_batches(core: SentinelCore, batches: Iterable[Timed]) -> tuple[list[float], list[float]]:
    """Return, per batch, wall and processor time a step, in us."""
    walls, cpus = [], []
    for batch, arrived_ns in batches:
        count = len(batch.tables.steps)
        wall, cpu = time.perf_counter(), time.thread_time()
        core.take(batch, arrived_ns)
        core.advance(arrived_ns)
        cpus.append((time.thread_time() - cpu) / count * 1e6)
        walls.append((time.perf_counter() - wall) / count * 1e6)
    return walls, cpus


def list_blocks(cycle_ns: float, first_step: int) -> Iterator[Timed]:
    ledger = MadeLedger(
        seconds=10, base_ns=cycle_ns, first_step=first_step, start_s=WARM_UP_S, seed=2, noise=0.03
    )
    return ledger.list_batches()


def list_single_steps(first_step: int) -> Iterator[Timed]:
    """Yield ledgers of one step each, as no exporter would send them."""
    ledger = MadeLedger(seconds=300, base_ns=1e9, first_step=first_step, start_s=WARM_UP_S, seed=3)
    return (own for own in ledger.list_batches() if len(own[0].tables.steps) == 1)


def measure_fit() -> tuple[float, float, float]:
    """Return the seconds of a fit, and the ms of handing it over and of 1 ms of sleep meanwhile (99 %)."""
    steps = MadeLedger(seconds=60).make_steps()
    rows = select_charted(steps)
    groups = (steps.output_ready_ns // np.uint64(10**9)).astype(np.int64)
    job = TrainJob("engine", build_work(steps, rows), steps.cycle_ns, groups, 1)
    trainer = ProcessTrainer(2 << 30, 300.0, Counters())
    pause = threading.Event()
    before = time.perf_counter()
    trainer.submit(job)
    handed_over_s = time.perf_counter() - before
    waits = []
    while not trainer.poll():
        at = time.perf_counter()
        pause.wait(0.001)
        waits.append(time.perf_counter() - at)
    return time.perf_counter() - before, handed_over_s * 1e3, statistics.quantiles(waits, n=100)[98] * 1e3


def measure() -> str:
    first_step, rows = 10**6, []
    ready = warm_up()
    for cycle_ns in CYCLES_NS:
        batches = list(list_blocks(cycle_ns, first_step))
        first_step += 10**7
        walls, cpus = measure_batches(copy_core(ready), batches)
        size = statistics.median(len(batch.tables.steps) for batch, _ in batches)
        rows.append(
            f"| {size:,.0f} | {statistics.median(walls):.1f} | {statistics.quantiles(walls, n=20)[18]:.1f} "
            f"| {statistics.median(cpus):.1f} |"
        )
    walls, cpus = measure_batches(ready, list_single_steps(first_step))
    single = f"| 1 | {statistics.median(walls):,.0f} | {statistics.quantiles(walls, n=20)[18]:,.0f} "
    rows.append(single + f"| {statistics.median(cpus):,.0f} |")
    fit_s, handed_over_ms, wait_ms = measure_fit()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"""# What the sentinel costs

Microseconds a step, through scoring, charts, diagnosis and requests, with a fitted model; a chunk is what an
exporter ships twice a second. Reach: 20 us amortised in blocks, 1 ms for a step that comes alone.

Machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}, Python
{platform.python_version()}; load average {load}.
Command: `python benchmarks/sentinel_cost.py --write`.

| steps a chunk | wall, median | wall, 95 % | processor time, median |
|---|---|---|---|
{chr(10).join(rows)}

A fit of a minute's steps took {fit_s:.1f} s in its own niced process. Handing it over took
{handed_over_ms:.1f} ms; a thread that slept 1 ms at a time meanwhile woke after {wait_ms:.1f} ms (99 %).
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    table = measure() if (options := parser.parse_args()) else ""
    print(table)
    if options.write:
        RESULTS.write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
