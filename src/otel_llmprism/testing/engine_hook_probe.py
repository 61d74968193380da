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


class Probe:
    """Sums what the hooks take from one schedule call to the next; one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.places: dict[str, list[int]] = {}  # calls, ns
        self._empty_ns = 0
        self._spent_ns = 0  # outside minus inside, since the last step began
        self._requests = 0  # in the step that is under way
        self._moves = 0  # requests that came or went meanwhile
        self._steps: list[tuple[int, int, int, int]] = []  # requests, moves, ns, ns of the empty wrapper

    def note_outside(self, place: str, duration_ns: int) -> None:
        self._spent_ns += duration_ns
        place_sums = self.places.setdefault(place, [0, 0])
        place_sums[0] += 1
        place_sums[1] += duration_ns
        self._moves += place in _MOVES

    def note_inside(self, place: str, duration_ns: int) -> None:
        self._spent_ns -= duration_ns
        self.places.setdefault(place, [0, 0])[1] -= duration_ns

    def note_empty(self, sign: int, duration_ns: int) -> None:
        self._empty_ns += sign * duration_ns
        place_sums = self.places.setdefault(EMPTY, [0, 0])
        place_sums[0] += sign > 0
        place_sums[1] += sign * duration_ns

    def begin_step(self) -> None:
        if self._requests:
            self._steps.append((self._requests, self._moves, self._spent_ns, self._empty_ns))
            if len(self._steps) % WRITE_EVERY == 0:
                self.write()
        self._requests = self._moves = self._spent_ns = self._empty_ns = 0

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
        code = getattr(wrapper, "__code__", None)
        if code is not None and _WRAPPED in code.co_freevars:
            cell = wrapper.__closure__[code.co_freevars.index(_WRAPPED)]
            cell.cell_contents = time_call(cell.cell_contents, functools.partial(probe.note_inside, name))
        outside = time_call(wrapper, functools.partial(probe.note_outside, name))
        if name == "schedule":
            outside = count_steps(outside, probe)
        setattr(outside, _MARK, True)
        setattr(owner, name, outside)


def measure_empty_wrapper(owner: type, probe: Probe) -> None:
    """Measure a wrapper that does nothing as ours are measured."""
    original = getattr(owner, _UNHOOKED, None)
    if original is None or getattr(original, _MARK, False):
        return
    inside = time_call(original, functools.partial(probe.note_empty, -1))

    @functools.wraps(original)
    def empty(self: Any, *args: Any, **kwargs: Any) -> Any:
        return inside(self, *args, **kwargs)

    outside = time_call(empty, functools.partial(probe.note_empty, 1))
    setattr(outside, _MARK, True)
    setattr(owner, _UNHOOKED, outside)


def time_call(call: Callable[..., Any], note: Callable[[int], None]) -> Callable[..., Any]:
    clock = time.perf_counter_ns  # the thread's own CPU clock costs ten times as much

    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:
        began_ns = clock()
        try:
            return call(*args, **kwargs)
        finally:
            note(clock() - began_ns)

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
