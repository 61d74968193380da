# The faults that an evaluation injects, and which finding is right for each: the acceptance table, as values.
from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_llmprism.testing.mini_engine.fault_schedule import Place

CLEAR = (2.0, 3.0)
ALL_INTENSITIES = (1.1, 1.3, 2.0, 3.0)


@dataclass(frozen=True, slots=True)
class FaultKind:
    """`accepted`: finding kind and subject type; `subjects`: the ids that are right, empty for any.

    `place`: where inside the engine it strikes; None: outside of it. `words`: what its engine is started with
    beyond the drawn defaults.
    """

    name: str
    layer: str
    target: str
    accepted: tuple[tuple[str, str], ...]
    place: Place | None = None
    has_known_delay: bool = False  # of steps, booked by the injector
    ranks: int = 1
    subjects: tuple[str, ...] = ()
    intensities: tuple[float, ...] = CLEAR
    load: Mapping[str, float] = field(default_factory=dict)  # instead of the drawn one


KINDS: Mapping[str, FaultKind] = {
    kind.name: kind
    for kind in (
        FaultKind("none", "none", "", ()),
        FaultKind(
            "operator", "software", "engine", (("step_regression", "engine"),), Place.OPERATOR, True,
            intensities=ALL_INTENSITIES,
        ),
        FaultKind(
            "scheduler", "software", "engine", (("scheduler_delay", "engine"),), Place.SCHEDULER, True,
            intensities=ALL_INTENSITIES,
        ),
        FaultKind(
            "front_end", "software", "engine", (("frontend_delay", "engine"),), Place.FRONT_END,
            intensities=ALL_INTENSITIES,
        ),
        FaultKind(
            "slow_rank", "software", "1", (("slow_worker", "rank"),), Place.RANK, True,
            ranks=2, subjects=("1",), intensities=ALL_INTENSITIES,
        ),
        FaultKind("cpu_burn", "host", "host", (("cpu_contention", "host"),)),
        FaultKind("cpu_quota", "host", "engine", (("cpu_throttle", "engine"),)),
        FaultKind(
            "cpu_quota_rank", "host", "1", (("cpu_throttle", "rank"),), ranks=2, subjects=("1",)
        ),
        FaultKind(
            "affinity", "host", "engine", (("cpu_contention", "engine"), ("cpu_contention", "rank")), ranks=2
        ),
        FaultKind(
            "memory", "memory", "engine", (("memory_pressure", "host"), ("memory_pressure", "engine"))
        ),
        FaultKind(
            "kv_cache", "load", "engine", (("kv_pressure", "engine"),), Place.KV_CACHE,
            load={"closed": 16, "prompt": 64, "output": 64},
        ),
        FaultKind(
            "overload", "load", "engine", (("overload", "engine"),), Place.LOAD,
            intensities=(8.0, 12.0), load={"max-batch": 8},
        ),
        FaultKind(
            "link", "communication", "1->0", (("slow_link", "link"),), ranks=2, subjects=("0->1", "1->0")
        ),
    )
}  # fmt: skip
