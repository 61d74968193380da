# Samples of a host -> what went on between two looks: cores used by the engine and by others, its threads'
# time in the run queue, throttling, pressure, faults, GPUs. Sums only rise; one that falls began anew.
from dataclasses import dataclass, field

import numpy as np

from otel_llmprism.diagnose.facts.real_time import to_real
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.hosts import NO_RANK, HostTables
from otel_llmprism.semconv import gpu as gpu_names

THREAD_CPU, THREAD_WAIT = "process.thread.cpu_s/", "process.thread.wait_s/"
_STATES = "system.cpu.time_s/"
# Sums that are rates as they stand.
_RATES = (
    "system.pressure_s/",
    "cgroup.pressure_s/",
    "cgroup.cpu.nr_throttled",
    "cgroup.cpu.throttled_s",
    "system.memory_events/",
    "cgroup.memory_events/",
    "system.context_switches",
    f"{gpu_names.GPU_IO}/",
    f"{gpu_names.GPU_THROTTLED_TIME}/",
    f"{gpu_names.GPU_NVLINK_IO}/",
    f"{gpu_names.HW_ERRORS}/",
)
_LEVELS = (
    "system.tasks_running",
    "system.memory_bytes/",
    "cgroup.memory_bytes/",
    "cgroup.cpu.limit_cores",
    f"{gpu_names.GPU_UTILIZATION}/",
    f"{gpu_names.GPU_MEMORY_UTILIZATION}/",
    f"{gpu_names.GPU_CLOCK}/",
    f"{gpu_names.GPU_THROTTLED}/",
    f"{gpu_names.GPU_PCIE_THROUGHPUT}/",
)
MAX_SERIES = 20_000
_MAX_LOOK_NS = 15_000_000_000  # longer apart, two looks tell of no second


@dataclass(slots=True)
class _Look:
    """What one moment's samples add up to while they are read."""

    values: dict[str, float] = field(default_factory=dict)
    cpu_by_pid: dict[int, float] = field(default_factory=dict)
    states: dict[str, float] = field(default_factory=dict)
    waits: dict[tuple[int, str], float] = field(default_factory=dict)  # by pid and thread
    cpus: dict[tuple[int, str], float] = field(default_factory=dict)
    foreign_bytes: dict[str, float] = field(default_factory=dict)


class RateReader:
    """One node beside one engine; remembers the last value of every sum."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], float] = {}
        self._last_ns = 0
        self._ranks: dict[int, int] = {}
        self.refused = 0

    def read(self, tables: HostTables, anchor: Anchor) -> list[tuple[int, int, dict[str, float]]]:
        """Return (begin, end, values) of each look in the tables, oldest first."""
        names, pids, ranks = tables.list_names(), tables.series.pid.tolist(), tables.series.rank.tolist()
        self._ranks |= {pid: rank for pid, rank in zip(pids, ranks, strict=True) if rank != NO_RANK}
        samples = tables.samples
        looks = []
        for moment in np.unique(samples.time_ns).tolist():
            now = to_real(moment, anchor)
            rows = np.flatnonzero(samples.time_ns == moment)
            told = self._list_told(rows.tolist(), tables, names, pids)
            begin, elapsed_ns = self._last_ns, now - self._last_ns
            is_whole = bool(begin) and 0 < elapsed_ns <= _MAX_LOOK_NS
            look = self._take(told, elapsed_ns / 1e9 if is_whole else 0.0)
            self._last_ns = now
            if is_whole:
                looks.append((begin, now, self._sum_up(look)))
        return looks

    def _list_told(
        self, rows: list[int], tables: HostTables, names: list[str], pids: list[int]
    ) -> list[tuple[int, str, float]]:
        told = []
        for row in rows:
            series = int(tables.samples.series_row[row])
            value = float(tables.samples.value[row])
            if series < len(names) and np.isfinite(value):
                told.append((pids[series], names[series], value))
            else:
                self.refused += 1
        return told

    def _take(self, told: list[tuple[int, str, float]], elapsed_s: float) -> _Look:
        look = _Look()
        for pid, name, value in told:
            if name.startswith(f"{gpu_names.GPU_PROCESS_MEMORY}/"):
                gpu = name.split("/")[1]
                if pid not in self._ranks and (pid, "process.cpu_s/user") not in self._last:
                    look.foreign_bytes[gpu] = look.foreign_bytes.get(gpu, 0.0) + value
            elif name.startswith(_LEVELS):
                look.values[self._name(pid, name)] = value
            else:
                self._take_sum(look, pid, name, value, elapsed_s)
        for gpu, size in look.foreign_bytes.items():
            look.values[f"gpu.foreign_bytes/{gpu}"] = size
        return look

    def _take_sum(self, look: _Look, pid: int, name: str, value: float, elapsed_s: float) -> None:
        key = (pid, name)
        before = self._last.get(key)
        if before is None and len(self._last) >= MAX_SERIES:  # threads come and go
            del self._last[next(iter(self._last))]
            self.refused += 1
        self._last[key] = value
        if before is None or not elapsed_s:
            return
        rate = max(0.0, value - before) / elapsed_s
        if name.startswith(THREAD_CPU):
            look.cpus[pid, name.removeprefix(THREAD_CPU)] = rate
        elif name.startswith(THREAD_WAIT):
            look.waits[pid, name.removeprefix(THREAD_WAIT)] = rate
        elif name.startswith(_STATES):
            look.states[name.removeprefix(_STATES)] = rate
        elif name.startswith("process.cpu_s/"):
            look.cpu_by_pid[pid] = look.cpu_by_pid.get(pid, 0.0) + rate
        elif name == "process.page_faults/major":
            look.values["own.major_faults"] = look.values.get("own.major_faults", 0.0) + rate
        elif name.startswith(_RATES):
            look.values[self._name(pid, name)] = rate

    def _sum_up(self, look: _Look) -> dict[str, float]:
        values = look.values
        own = sum(look.cpu_by_pid.values())
        if look.states:
            idle = look.states.get("idle", 0.0) + look.states.get("iowait", 0.0)
            steal = look.states.get("steal", 0.0)
            total = sum(look.states.values())
            values["cores"] = total
            values["idle_cores"] = idle
            values["steal_cores"] = steal
            values["others_cores"] = max(0.0, total - idle - own)  # what others used, the hypervisor too
        if look.cpu_by_pid:
            values["own_cores"] = own
            for pid, used in look.cpu_by_pid.items():
                self._add(values, f"cores/{self._label(pid)}", used)
            self._add_waits(values, look)
        return values

    def _add_waits(self, values: dict[str, float], look: _Look) -> None:
        if not any(name.startswith(THREAD_WAIT) for _, name in self._last):
            return  # a kernel without statistics: not told, which is not zero
        values["wait"] = sum(look.waits.values())
        for pid in look.cpu_by_pid:
            values.setdefault(f"wait/{self._label(pid)}", 0.0)
        for (pid, _), rate in look.waits.items():
            self._add(values, f"wait/{self._label(pid)}", rate)
        for label in {"", *(f"/{self._label(pid)}" for pid in look.cpu_by_pid)}:
            waits = {
                key: rate for key, rate in look.waits.items() if label in {"", f"/{self._label(key[0])}"}
            }
            if waits:
                worst = max(waits, key=lambda key: waits[key])
                used = values[f"cores{label}"] if label else values["own_cores"]
                values[f"worst_wait{label}"] = waits[worst]
                # Who ran while it waited: everything of ours but itself.
                values[f"beside_worst{label}"] = max(0.0, used - look.cpus.get(worst, 0.0))

    def _name(self, pid: int, name: str) -> str:
        """Return a signal's name; a group that is told of a process is that rank's."""
        rank = self._ranks.get(pid) if name.startswith("cgroup.") else None
        return name if rank is None else f"{name}/rank{rank}"

    def _label(self, pid: int) -> str:
        rank = self._ranks.get(pid)
        return "rest" if rank is None else f"rank{rank}"

    @staticmethod
    def _add(values: dict[str, float], name: str, amount: float) -> None:
        values[name] = values.get(name, 0.0) + amount
