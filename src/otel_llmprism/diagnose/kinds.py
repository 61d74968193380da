# The kinds of findings, and what each may name as its subject. Constants; what they mean: docs/findings.md.
from enum import StrEnum


class FindingKind(StrEnum):
    """Those of the contract that this code can open."""

    SLOW_WORKER = "slow_worker"
    SLOW_LINK = "slow_link"
    COMMUNICATION_DELAY = "communication_delay"
    GPU_THROTTLE = "gpu_throttle"
    GPU_CONTENTION = "gpu_contention"
    GPU_MEMORY_PRESSURE = "gpu_memory_pressure"
    CPU_CONTENTION = "cpu_contention"
    CPU_THROTTLE = "cpu_throttle"
    MEMORY_PRESSURE = "memory_pressure"
    PCIE_CONTENTION = "pcie_contention"
    NVLINK_CONTENTION = "nvlink_contention"
    SCHEDULER_DELAY = "scheduler_delay"
    FRONTEND_DELAY = "frontend_delay"
    OVERLOAD = "overload"
    KV_PRESSURE = "kv_pressure"
    DATA_STALL = "data_stall"
    STEP_REGRESSION = "step_regression"
    HANG = "hang"


class SubjectType(StrEnum):
    ENGINE = "engine"
    HOST = "host"
    RANK = "rank"
    LINK = "link"
    GROUP = "group"
    GPU = "gpu"


class Domain(StrEnum):
    """Whose time is lost: the incident's alarms come from there, its excess is measured there."""

    STEPS = "steps"
    FRONT_END = "front_end"
    QUEUE = "queue"
    SILENCE = "silence"  # no output at all


# Shortages of the machine slow everything on it, so whatever else looks slow meanwhile is their victim.
RESOURCE_KINDS = frozenset(
    {
        FindingKind.CPU_CONTENTION,
        FindingKind.CPU_THROTTLE,
        FindingKind.MEMORY_PRESSURE,
        FindingKind.GPU_THROTTLE,
        FindingKind.GPU_CONTENTION,
        FindingKind.GPU_MEMORY_PRESSURE,
        FindingKind.PCIE_CONTENTION,
        FindingKind.NVLINK_CONTENTION,
    }
)
