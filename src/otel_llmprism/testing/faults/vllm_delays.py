# Delays inside real vLLM: a vLLM plugin that makes its scheduler, its model runner or its front end slow
# when a schedule says so, and books what it added by time. Sleeps until a variable wakes it; shares no code
# with ours.
import json
import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from otel_llmprism.testing.mini_engine.fault_injector import FaultPlan
from otel_llmprism.testing.mini_engine.fault_schedule import Entry, Manner, Place, read_schedule

PATH_VARIABLE = "ENGINE_FAULTS"  # a schedule that may come later; its second 0 is in FILE.origin
ORIGIN_SUFFIX, LOG_SUFFIX = ".origin", ".added"
_LOOK_EVERY_NS = 200_000_000
_LONGEST_STEP_NS = 50_000_000  # a longer time between two schedule calls was idle
_REQUEST_NS = 10_000_000  # what a front end usually takes, roughly

_TARGETS = (
    (Place.SCHEDULER, "vllm.v1.core.sched.scheduler", "Scheduler", "schedule"),
    (Place.OPERATOR, "vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "execute_model"),
    (Place.FRONT_END, "vllm.v1.engine.input_processor", "InputProcessor", "process_inputs"),
)
_slowed: set[tuple[str, str]] = set()


def install() -> None:
    """Entry of `vllm.general_plugins`: wrap what can be made slow."""
    path = os.environ.get(PATH_VARIABLE)
    if not path:
        return
    delays = Delays(Path(path))
    for place, module, owner, name in _TARGETS:
        if (owner, name) not in _slowed:
            _slowed.add((owner, name))
            cls = getattr(import_module(module), owner)
            setattr(cls, name, wrap_call(getattr(cls, name), place, delays))


def wrap_call(original: Callable[..., Any], place: Place, delays: "Delays") -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        began_ns = time.monotonic_ns()
        result = original(*args, **kwargs)
        delays.delay(place, time.monotonic_ns() - began_ns)
        return result

    call.__wrapped__ = original  # type: ignore[attr-defined]  # so that signatures are seen through it
    return call


class Delays:
    """One per process; called by the thread that runs the step, or by the front end's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._plan: FaultPlan | None = None
        self._looked_ns = 0
        self._scheduled_ns = 0  # when the last schedule call began
        self._added_ns = 0  # since then

    def delay(self, place: Place, own_ns: int) -> None:
        """Spend what the schedule says at this place, now."""
        now_ns = time.monotonic_ns()
        base_ns = {Place.OPERATOR: own_ns, Place.FRONT_END: _REQUEST_NS}.get(place, 0)
        if place is Place.SCHEDULER:  # the model may run in another process: what lies between two calls
            base_ns = min(now_ns - self._scheduled_ns - self._added_ns, _LONGEST_STEP_NS)
            self._scheduled_ns, self._added_ns = now_ns, 0
        plan = self._plan or self._look(now_ns)
        entry = plan.find_entry(place, now_ns) if plan is not None else None
        if entry is None:
            return
        self._spend(entry, now_ns, (entry.intensity - 1) * base_ns)

    def _look(self, now_ns: int) -> FaultPlan | None:
        if now_ns - self._looked_ns > _LOOK_EVERY_NS:
            self._looked_ns = now_ns
            origin = self._path.with_name(self._path.name + ORIGIN_SUFFIX)
            if origin.exists():
                self._plan = FaultPlan(read_schedule(self._path), int(origin.read_text(encoding="utf-8")))
        return self._plan

    def _spend(self, entry: Entry, began_ns: int, wanted_ns: float) -> None:
        if entry.manner is Manner.SLEEP:
            time.sleep(wanted_ns / 1e9)
        else:
            while time.monotonic_ns() - began_ns < wanted_ns:
                pass
        spent_ns = time.monotonic_ns() - began_ns
        self._added_ns += spent_ns
        line = {"at_ns": began_ns, "added_ns": spent_ns, "fault": entry.id, "place": entry.place}
        path = self._path.with_name(f"{self._path.name}{LOG_SUFFIX}.{os.getpid()}")
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
