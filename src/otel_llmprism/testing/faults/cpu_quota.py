# A CPU quota on an engine's processes or on one rank: cgroup throttling, as a container's limit does it.
import time
from collections.abc import Sequence

from otel_llmprism.testing.faults.control_groups import ControlGroup, make_group
from otel_llmprism.testing.faults.process_threads import read_cpu_s

LEAST_CORES = 0.05


class CpuQuota:
    """Set on a group that its processes were in before, as on a container: only the limit changes.

    It allows 1 / intensity of what they used while they were not throttled.
    """

    layer = "host"

    def __init__(self, pids: Sequence[int], target: str) -> None:
        self.target = target
        self._pids = tuple(pids)
        self._group: ControlGroup | None = None
        self._since_s = self._used_s = 0.0

    def prepare(self) -> None:
        """Put the processes into their group, unlimited."""
        self._group = make_group("cpu", self.target.replace("/", "-"))
        self._group.limit_cpu(None)
        for pid in self._pids:
            self._group.add_process(pid)
        self._note_use()

    def start(self, intensity: float) -> None:
        """Throttle from now on."""
        if self._group is not None:
            spent_s = max(time.monotonic() - self._since_s, 1e-3)
            used_cores = (self._sum_use() - self._used_s) / spent_s
            self._group.limit_cpu(max(LEAST_CORES, used_cores / intensity))

    def stop(self) -> None:
        """Lift the limit; the group stays."""
        if self._group is not None:
            self._group.limit_cpu(None)
            self._note_use()

    def close(self) -> None:
        if self._group is not None:
            self._group.remove()
            self._group = None

    def _note_use(self) -> None:
        self._since_s, self._used_s = time.monotonic(), self._sum_use()

    def _sum_use(self) -> float:
        return sum(map(read_cpu_s, self._pids))
