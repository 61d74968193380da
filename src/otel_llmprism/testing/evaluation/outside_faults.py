# Which real fault stands for which kind: kinds and an engine's pids in, faults out. Those that an engine
# must be started into (a control group, a link) are built before it, the others when its processes are
# known.
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.faults.affinity import AffinitySqueeze
from otel_llmprism.testing.faults.cpu_burners import CpuBurners
from otel_llmprism.testing.faults.cpu_quota import CpuQuota
from otel_llmprism.testing.faults.fault import Fault
from otel_llmprism.testing.faults.link import LinkThrottle
from otel_llmprism.testing.faults.memory_squeeze import MemorySqueeze

_HEADROOM_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class EngineHandle:
    """The processes that compute, by rank."""

    rank_pids: Mapping[int, int]


def build_before(kinds: Collection[str]) -> dict[str, Fault]:
    """Return those of these kinds that the engine is started into."""
    found: dict[str, Fault] = {}
    if "link" in kinds:
        found["link"] = LinkThrottle(KINDS["link"].target)
    if "memory" in kinds:
        found["memory"] = MemorySqueeze(KINDS["memory"].target, _HEADROOM_BYTES)
    return found


def build_after(kinds: Collection[str], engine: EngineHandle) -> dict[str, Fault]:
    """Return those of these kinds that strike a running engine from outside."""
    cores, pids = sorted(os.sched_getaffinity(0)), list(engine.rank_pids.values())
    one_rank = [pid for rank, pid in engine.rank_pids.items() if str(rank) == KINDS["cpu_quota_rank"].target]
    possible: dict[str, Fault] = {
        "cpu_burn": CpuBurners(cores),
        "cpu_quota": CpuQuota(pids, "engine"),
        "cpu_quota_rank": CpuQuota(one_rank, "rank"),
        "affinity": AffinitySqueeze(pids, "engine", cores[0]),
    }
    return {name: fault for name, fault in possible.items() if name in kinds}
