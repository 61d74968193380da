# Memory pressure on an engine: its group's limit is lowered to little above what cannot be given back, so
# that code and mapped files are dropped and read again. Bounded: what it holds itself always fits.
import time
from pathlib import Path

from otel_llmprism.testing.faults.control_groups import ControlGroup, make_group

_STEPS = 20  # the limit is lowered bit by bit: at once, the kernel refuses or kills
_UNRECLAIMABLE = ("rss", "anon", "slab_unreclaimable", "kernel_stack", "percpu", "sock", "shmem")


class MemorySqueeze:
    """The engine must be started inside the group: memory is charged where it is first touched."""

    layer = "memory"

    def __init__(self, target: str, headroom_bytes: int) -> None:
        self.target = target
        self._headroom_bytes = headroom_bytes
        self._group: ControlGroup | None = None

    def prepare(self) -> None:
        """Make the group, unlimited."""
        self._group = make_group("memory", self.target.replace("/", "-"))
        self._group.limit_memory(None)
        self._group.wait_when_full()

    def find_folder(self) -> Path:
        """Return the group's folder, into whose `cgroup.procs` the engine's first process writes itself."""
        assert self._group is not None, "prepare it first"
        return self._group.folder

    def start(self, intensity: float) -> None:
        """Lower the limit as far as the kernel follows."""
        if self._group is None:
            return
        sizes = self._group.read_memory()
        held = sum(sizes.get(name, 0) for name in _UNRECLAIMABLE) + round(self._headroom_bytes / intensity)
        now = max(held, sum(sizes.get(name, 0) for name in ("rss", "cache", "anon", "file")))
        for step in range(1, _STEPS + 1):
            try:
                self._group.limit_memory(int(now + (held - now) * step / _STEPS))
            except OSError:
                time.sleep(0.01)  # busy: it gives back what it can, and the next step asks again

    def stop(self) -> None:
        if self._group is not None:
            self._group.limit_memory(None)

    def close(self) -> None:
        if self._group is not None:
            self._group.limit_memory(None)
            self._group.remove()
            self._group = None
