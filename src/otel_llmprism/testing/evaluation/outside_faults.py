# Which real fault stands for which kind: kinds and an engine's pids in, faults out. Those that an engine
# must be started into (a control group, a link) are built before it, the others when its processes are
# known.
import os
from collections.abc import Mapping
from dataclasses import dataclass

from otel_llmprism.testing.evaluation.fault_kinds import FaultKind
from otel_llmprism.testing.faults.affinity import AffinitySqueeze
from otel_llmprism.testing.faults.cpu_burners import CpuBurners
from otel_llmprism.testing.faults.cpu_quota import CpuQuota
from otel_llmprism.testing.faults.fault import Fault
from otel_llmprism.testing.faults.link import LinkThrottle
from otel_llmprism.testing.faults.memory_squeeze import MemorySqueeze

_HEADROOM_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class EngineHandle:
    """The processes that compute, by rank."""

    rank_pids: Mapping[int, int]


def build_before(kind: FaultKind) -> Fault | None:
    """Return the fault that the engine is started into, if it is one of those."""
    if kind.name == "link":
        return LinkThrottle(kind.target)
    if kind.name == "memory":
        return MemorySqueeze(kind.target, _HEADROOM_BYTES)
    return None


def build_after(kind: FaultKind, engine: EngineHandle) -> Fault | None:
    """Return the fault that strikes a running engine from outside, if it is one of those."""
    cores, pids = sorted(os.sched_getaffinity(0)), list(engine.rank_pids.values())
    if kind.name == "cpu_burn":
        return CpuBurners(cores)
    if kind.name == "cpu_quota":
        return CpuQuota(pids, kind.target)
    if kind.name == "cpu_quota_rank":
        return CpuQuota([engine.rank_pids[int(kind.target)]], kind.target)
    if kind.name == "affinity":
        return AffinitySqueeze(pids, kind.target, cores[0])
    return None
