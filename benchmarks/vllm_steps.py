# What our hooks take of a step of vLLM's scheduler, without vLLM: a stand-in scheduler with the shapes of its
# outputs, real wrappers, a real ring, and between the hooks other work that empties the caches, as a
# forward pass does. The extension and the Python path, side by side. Needs nothing but this package.
#   python benchmarks/vllm_steps.py --write
import argparse
import gc
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hook_cost import OtherWork, read_processor

from otel_llmprism.instrumentation import process_run
from otel_llmprism.instrumentation.frameworks.vllm import core
from otel_llmprism.instrumentation.frameworks.vllm.carrier import CARRIER_KEY, Carrier, write_carrier
from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.step_records import StepRecorder
from otel_llmprism.instrumentation.trace_context import SpanContext
from otel_llmprism.instrumentation.watched_ring import WatchedRing
from otel_llmprism.native.ring import RingReader, RingWriter
from otel_llmprism.native.ring_records import Mode

RESULTS = Path(__file__).parent / "results" / "vllm_steps.md"
PLACES = ("add_request", "schedule", "update_from_output", "_free_request")
WRAPS = (
    core.wrap_add_request,
    core.wrap_schedule,
    core.wrap_update_from_output,
    core.wrap_free_request,
)
PROMPT = 16
_FINISHED = SimpleNamespace(name="FINISHED_LENGTH_CAPPED")


@dataclass
class CachedRequests:
    req_ids: list[str] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)


@dataclass
class Output:
    scheduled_new_reqs: list[Any]
    scheduled_cached_reqs: CachedRequests
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int


@dataclass(eq=False)
class Request:
    request_id: str
    left: int
    trace_headers: Any = None
    num_prompt_tokens: int = PROMPT
    num_computed_tokens: int = 0
    num_output_tokens: int = 0
    status: Any = None


class KvCacheManager:
    @property
    def usage(self) -> float:
        return 0.25


class Scheduler:
    def __init__(self, batch: int, answer: int) -> None:
        parallel = SimpleNamespace(pipeline_parallel_size=1)
        watching = SimpleNamespace(otlp_traces_endpoint=None)
        self.vllm_config = SimpleNamespace(parallel_config=parallel, observability_config=watching)
        self.kv_cache_manager = KvCacheManager()
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self._batch, self._answer = batch, answer
        self._number = 0

    def get_request_counts(self) -> tuple[int, int]:
        return len(self.running), len(self.waiting)

    def _preempt_request(self, request: Request) -> None:
        pass

    def make_request(self) -> Request:
        self._number += 1
        number = self._number
        name = f"chatcmpl-{number * 7919:032x}"
        is_first = number <= self._batch
        left = 1 + number * self._answer // self._batch if is_first else self._answer
        ids = f"{number:016x}".encode()
        context = SpanContext(ids, ids[:8], bytes(8), is_sampled=True)
        carrier = Carrier(time.monotonic_ns(), "", name[:-9], False, True, context)
        return Request(name, left, {CARRIER_KEY: write_carrier(carrier)})

    def add_request(self, request: Request) -> None:
        request.status = _FINISHED
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def schedule(self) -> Output:
        cached = CachedRequests()
        tokens = {}
        for request in self.running:
            tokens[request.request_id] = 1
            cached.req_ids.append(request.request_id)
            cached.num_computed_tokens.append(request.num_computed_tokens)
        new = []
        for request in self.waiting:
            tokens[request.request_id] = PROMPT
            new.append(SimpleNamespace(req_id=request.request_id, num_computed_tokens=0))
            self.running.append(request)
        self.waiting = []
        for request in self.running:
            request.num_computed_tokens += tokens[request.request_id]
        return Output(new, cached, tokens, sum(tokens.values()))

    def update_from_output(self, output: Output, _result: Any) -> None:
        for name in output.num_scheduled_tokens:
            request = self.requests[name]
            request.num_output_tokens += 1
            request.left -= 1
        for request in [one for one in self.running if not one.left]:
            self._free_request(request)

    def _free_request(self, request: Request) -> None:
        self.running.remove(request)
        del self.requests[request.request_id]


class Clock:
    """Outside minus inside of each wrapper, as the probe in vLLM does it."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self.places: dict[str, list[int]] = {name: [] for name in PLACES}
        self._inside_ns = 0

    def wrap(self, name: str, wrap: Callable[[Any], Any], original: Any) -> Any:
        return self._time_outside(self.places[name], wrap(self._time_inside(original)))

    def _time_inside(self, call: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter_ns

        def timed(*args: Any, **kwargs: Any) -> Any:
            began_ns = clock()
            try:
                return call(*args, **kwargs)
            finally:
                self._inside_ns = clock() - began_ns

        return timed

    def _time_outside(self, found: list[int], call: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter_ns

        def timed(*args: Any, **kwargs: Any) -> Any:
            began_ns = clock()
            try:
                return call(*args, **kwargs)
            finally:
                ours_ns = clock() - began_ns - self._inside_ns
                self.spent_ns += ours_ns
                found.append(ours_ns)

        return timed


class PretendRun:
    """What the hooks use of an EngineRun."""

    def __init__(self, folder: Path) -> None:
        self.writer = RingWriter.create(folder / f"{time.monotonic_ns()}.ring", 1 << 13)
        self.reader = RingReader.open(self.writer.path)
        ring = WatchedRing(self.writer, os.getpid)
        keeper = StepKeeper("engine-0123456789ab", bytes(16), "sample")
        self.steps = StepRecorder(ring, keeper, Mode.SENTINEL)
        self.requests = RequestRecorder(ring, build_sampler({}), reads_context=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rows", action="store_true", help="print the rows of this process alone")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    if options.rows:
        print(measure_all(options.steps))
        return 0
    text = format_report(options.steps)
    print(text)
    if options.write:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


def measure_all(steps: int) -> str:
    rows = []
    for answer in (100_000, 400, 32):
        for is_cold in (True, False):
            spent, places = measure(256, answer, steps, is_cold=is_cold)
            p50, p99 = statistics.median(spent) / 1e3, sorted(spent)[len(spent) * 99 // 100] / 1e3
            medians = " | ".join(
                f"{statistics.median(places[name]) / 1e3:.1f}" if places[name] else "" for name in PLACES
            )
            came = "no ends" if answer == 100_000 else f"{answer}"
            between = "other work" if is_cold else "nothing"
            rows.append(f"{came} | {between} | {p50:.1f} | {p99:.1f} | {medians} |")
    return "\n".join(rows)


def measure(batch: int, answer: int, steps: int, *, is_cold: bool) -> tuple[list[int], dict[str, list[int]]]:
    """Return our ns in each step, and in each call of each place."""
    clock, other = Clock(), OtherWork()
    wrapped = {
        name: clock.wrap(name, wrap, vars(Scheduler)[name]) for name, wrap in zip(PLACES, WRAPS, strict=True)
    }
    work = build_work(other) if is_cold else (lambda: None)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        run = PretendRun(Path(folder))
        process_run._run = run  # type: ignore[assignment]  # noqa: SLF001
        scheduler = type("Scheduler", (Scheduler,), wrapped)(batch, answer)
        spent = []
        warm_up = 80
        gc.disable()
        for step in range(steps + warm_up):
            if step == warm_up:
                for found in clock.places.values():
                    found.clear()
            clock.spent_ns = 0
            run_step(scheduler, batch, work)
            if step >= warm_up:
                spent.append(clock.spent_ns)
            if step % 20 == 0:
                run.reader.drain(1 << 15)
        gc.enable()
        process_run._run = None  # noqa: SLF001
        run.writer.close()
        run.reader.close(remove=True)
    return spent, clock.places


def run_step(scheduler: Any, batch: int, work: Callable[[], None]) -> None:
    for _ in range(batch - len(scheduler.running)):
        request = scheduler.make_request()
        work()
        scheduler.add_request(request)
    work()
    output = scheduler.schedule()
    work()
    scheduler.update_from_output(output, None)


def build_work(other: OtherWork) -> Callable[[], None]:
    source, target = bytearray(8 << 20), bytearray(8 << 20)

    def work() -> None:
        other.run()
        target[:] = source

    return work


def run_rows(steps: int, native: str) -> str:
    command = [sys.executable, __file__, "--rows", "--steps", str(steps)]
    environment = {**os.environ, "OTEL_LLMPRISM_NATIVE": native}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def format_report(steps: int) -> str:
    table = "\n".join(
        f"| {path} | {row}"
        for path, native in (("extension", "on"), ("Python", "off"))
        for row in run_rows(steps, native).splitlines()
    )
    return f"""# What the hooks take of a step of vLLM's scheduler

A stand-in for the scheduler, batch 256, prompts of {PROMPT} tokens, {steps} steps a row. A clock outside each
wrapper of ours and one inside; the sum of the differences over one step, arrivals and ends included, the
clocks' own cost too. Other work: some 20 MB are gone through before each call, so that it finds neither code
nor data in the caches near the core; a whole vLLM lies between the two (`vllm_hooks.md`).

| path | tokens of an answer | between calls | p50 us | p99 us | {" | ".join(PLACES)} |
|---|---|---|---|---|---|---|---|---|
{table}

The last four columns: median us a call. Machine: {os.cpu_count()} cores ({read_processor()}), Python
{platform.python_version()}, load average {os.getloadavg()[0]:.1f} as others worked on it.
Command: `python benchmarks/vllm_steps.py --write`.
"""


if __name__ == "__main__":
    sys.exit(main())
