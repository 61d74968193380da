# What our hooks take of vLLM's engine thread, measured inside vLLM's own process: a clock outside each of our
# wrappers and one inside, round what it wraps; the difference is ours. A vLLM plugin for benchmarks.
import functools
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

PATH_VARIABLE = "ENGINE_HOOK_PROBE"  # a file; the process that schedules appends its pid to the name
WRITE_EVERY = 500  # steps
_SCHEDULER, _WORKER = "vllm.v1.core.sched.scheduler", "vllm.v1.worker.gpu_worker"
PLACES = (
    (_SCHEDULER, "Scheduler", ("add_request", "schedule", "update_from_output", "_preempt_request")),
    (_SCHEDULER, "Scheduler", ("_free_request",)),
    (_WORKER, "Worker", ("execute_model", "sample_tokens")),
)
# Called in each step, not hooked: a wrapper round it that does nothing shows what the clocks themselves cost.
_UNHOOKED, EMPTY = "get_grammar_bitmask", "(an empty wrapper)"
_MOVES = frozenset({"add_request", "_free_request", "_preempt_request"})
_MARK = "_is_probe"
_WRAPPED = "original"  # the name under which each of our wrappers holds what it wraps


class Cell:
    """One place: calls, ns outside our wrapper and inside it. Bare sums: their cost is measured along."""

    __slots__ = ("calls", "inside_ns", "outside_ns")

    def __init__(self) -> None:
        self.calls = self.outside_ns = self.inside_ns = 0


class Probe:
    """Sums what the hooks take from one schedule call to the next; one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.cells: dict[str, Cell] = {}
        self._before = (0, 0, 0)
        self._requests = 0  # in the step that is under way
        self._steps: list[tuple[int, int, int, int]] = []  # requests, moves, ns, ns of the empty wrapper

    @property
    def places(self) -> dict[str, tuple[int, int]]:
        """Return calls and ns of ours by place."""
        return {name: (cell.calls, cell.outside_ns - cell.inside_ns) for name, cell in self.cells.items()}

    def begin_step(self) -> None:
        places = self.places
        moves = sum(places[name][0] for name in _MOVES & places.keys())
        empty_ns = places.get(EMPTY, (0, 0))[1]
        now = (moves, sum(ns for _, ns in places.values()) - empty_ns, empty_ns)
        if self._requests:
            moved, spent_ns, empty_ns = (one - other for one, other in zip(now, self._before, strict=True))
            self._steps.append((self._requests, moved, spent_ns, empty_ns))
            if len(self._steps) % WRITE_EVERY == 0:
                self.write()
        self._before, self._requests = now, 0

    def note_scheduled(self, output: Any) -> None:
        self._requests = len(output.num_scheduled_tokens)

    def write(self) -> None:
        """Write everything so far, as one JSON object."""
        heap = {}
        if tracemalloc.is_tracing():
            ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/otel_llmprism/*")])
            ours = ours.filter_traces([tracemalloc.Filter(False, "*/otel_llmprism/testing/*")])
            heap = {"heap_bytes": sum(trace.size for trace in ours.traces)}
        whole = Path(f"{self._path}.{os.getpid()}.new")
        whole.write_text(json.dumps({"steps": self._steps, "places": self.places, **heap}), encoding="utf-8")
        whole.replace(f"{self._path}.{os.getpid()}")


def install() -> None:
    """Entry of `vllm.general_plugins`: measure each of our wrappers that is in place or will be."""
    path = os.environ.get(PATH_VARIABLE)
    if not path:
        return
    probe = Probe(path)
    for module, owner, names in PLACES:
        if module == _SCHEDULER:
            scheduler = getattr(import_module(module), owner)
            measure_wrappers(scheduler, names, probe)
            measure_empty_wrapper(scheduler, probe)
        else:  # its import is the worker's to choose
            from wrapt import register_post_import_hook  # noqa: PLC0415

            register_post_import_hook(functools.partial(_measure_later, owner, names, probe), module)


def measure_wrappers(owner: type, names: tuple[str, ...], probe: Probe) -> None:
    """Put one clock round the wrapper and one round what it holds."""
    for name in names:
        wrapper = vars(owner).get(name)
        if wrapper is None or getattr(wrapper, _MARK, False):
            continue
        found = probe.cells.setdefault(name, Cell())
        code = getattr(wrapper, "__code__", None)
        if code is not None and _WRAPPED in code.co_freevars:
            cell = wrapper.__closure__[code.co_freevars.index(_WRAPPED)]
            cell.cell_contents = time_inside(cell.cell_contents, found)
        outside = time_outside(wrapper, found)
        if name == "schedule":
            outside = count_steps(outside, probe)
        setattr(outside, _MARK, True)
        setattr(owner, name, outside)


def measure_empty_wrapper(owner: type, probe: Probe) -> None:
    """Measure a wrapper that does nothing as ours are measured."""
    original = getattr(owner, _UNHOOKED, None)
    if original is None or getattr(original, _MARK, False):
        return
    found = probe.cells.setdefault(EMPTY, Cell())
    inside = time_inside(original, found)

    @functools.wraps(original)
    def empty(self: Any, *args: Any, **kwargs: Any) -> Any:
        return inside(self, *args, **kwargs)

    outside = time_outside(empty, found)
    setattr(outside, _MARK, True)
    setattr(owner, _UNHOOKED, outside)


def time_outside(call: Callable[..., Any], cell: Cell) -> Callable[..., Any]:
    clock = time.perf_counter_ns  # the thread's own CPU clock costs ten times as much

    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:
        cell.calls += 1
        began_ns = clock()
        try:
            return call(*args, **kwargs)
        finally:
            cell.outside_ns += clock() - began_ns

    return timed


def time_inside(call: Callable[..., Any], cell: Cell) -> Callable[..., Any]:
    clock = time.perf_counter_ns

    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:
        began_ns = clock()
        try:
            return call(*args, **kwargs)
        finally:
            cell.inside_ns += clock() - began_ns

    return timed


def count_steps(schedule: Callable[..., Any], probe: Probe) -> Callable[..., Any]:
    @functools.wraps(schedule)
    def counted(*args: Any, **kwargs: Any) -> Any:
        probe.begin_step()
        output = schedule(*args, **kwargs)
        probe.note_scheduled(output)
        return output

    return counted


def _measure_later(owner: str, names: tuple[str, ...], probe: Probe, module: Any) -> None:
    measure_wrappers(getattr(module, owner), names, probe)
