# The engine's control group, version 1 or 2 -> how long it was throttled and how near its memory limit
# it is. The paths come from /proc/PID/cgroup.
from collections.abc import Iterator
from pathlib import Path

from otel_llmprism.receivers.host_pressure import read_pressure
from otel_llmprism.receivers.host_reading import HostReading, read_numbers, read_text

_ROOT = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 62  # version 1 says nearly 2**63
_MEMORY_FILES = {
    "usage": ("memory.current", "memory.usage_in_bytes"),
    "limit": ("memory.max", "memory.limit_in_bytes"),
}
_MEMORY_EVENTS = ("high", "max", "oom", "oom_kill")


def read_cgroup(pid: int, proc: Path = Path("/proc"), root: Path = _ROOT) -> Iterator[HostReading]:
    """Yield throttling and limit of the cpus, stalls, and memory use, limit and events of `pid`'s group."""
    groups = parse_cgroups(read_text(proc / str(pid) / "cgroup"))
    cpu = find_group_folder(groups, "cpu", root)
    yield from _read_cpu_limit(find_limited_folder(cpu, root))
    memory = find_group_folder(groups, "memory", root)
    for key, names in _MEMORY_FILES.items():
        texts = [read_text(memory / name).strip() for name in names]
        sizes = [int(text) for text in texts if text.isdecimal()]  # version 2 says "max" for no limit
        if sizes and sizes[0] < _NO_LIMIT:
            yield HostReading("cgroup.memory_bytes", key, sizes[0])
    events = read_numbers(memory / "memory.oom_control") | read_numbers(memory / "memory.events")
    for key in _MEMORY_EVENTS:
        if key in events:
            yield HostReading("cgroup.memory_events", key, events[key])
    for reading in read_pressure(cpu, ".pressure"):
        yield reading._replace(name="cgroup.pressure_s")


def _read_cpu_limit(folder: Path) -> Iterator[HostReading]:
    numbers = read_numbers(folder / "cpu.stat")
    for key in ("nr_periods", "nr_throttled"):
        if key in numbers:
            yield HostReading(f"cgroup.cpu.{key}", "", numbers[key])
    if "throttled_usec" in numbers:
        yield HostReading("cgroup.cpu.throttled_s", "", numbers["throttled_usec"] / 1e6)
    elif "throttled_time" in numbers:
        yield HostReading("cgroup.cpu.throttled_s", "", numbers["throttled_time"] / 1e9)
    limit = read_cpu_limit(folder)
    if limit is not None:
        yield HostReading("cgroup.cpu.limit_cores", "", limit)


def find_limited_folder(folder: Path, root: Path) -> Path:
    """Return the nearest group upwards whose cpus are limited, else the group itself.

    Throttling is counted where the limit is set, such as at the pod.
    """
    for place in (folder, *folder.parents):
        if read_cpu_limit(place) is not None:
            return place
        if place == root:
            break
    return folder


def read_cpu_limit(folder: Path) -> float | None:
    """Return the cpus' worth of time that a group may use; None: no limit is set here."""
    words = read_text(folder / "cpu.max").split()
    if not words:
        words = [
            *read_text(folder / "cpu.cfs_quota_us").split(),
            *read_text(folder / "cpu.cfs_period_us").split(),
        ]
    if len(words) != 2 or not (words[0].isdecimal() and words[1].isdecimal()) or not int(words[1]):
        return None
    return int(words[0]) / int(words[1])


def parse_cgroups(text: str) -> dict[str, str]:
    """Return the path by controller; the unified hierarchy under the empty name."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def find_group_folder(groups: dict[str, str], controller: str, root: Path) -> Path:
    """Return where a controller's files lie; in a container the group's own path may not exist there."""
    base, path = (
        (root / controller, groups[controller]) if controller in groups else (root, groups.get("", "/"))
    )
    folder = base / path.lstrip("/")
    return folder if folder.is_dir() else base
