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


def read_cgroup(pid: int, proc: Path = Path("/proc"), root: Path = _ROOT) -> Iterator[HostReading]:
    """Yield periods, throttled periods and seconds, memory use and limit of the group of `pid`."""
    groups = parse_cgroups(read_text(proc / str(pid) / "cgroup"))
    cpu = find_group_folder(groups, "cpu", root)
    memory = find_group_folder(groups, "memory", root)
    numbers = read_numbers(cpu / "cpu.stat")
    for key in ("nr_periods", "nr_throttled"):
        if key in numbers:
            yield HostReading(f"cgroup.cpu.{key}", "", numbers[key])
    if "throttled_usec" in numbers:
        yield HostReading("cgroup.cpu.throttled_s", "", numbers["throttled_usec"] / 1e6)
    elif "throttled_time" in numbers:
        yield HostReading("cgroup.cpu.throttled_s", "", numbers["throttled_time"] / 1e9)
    for key, names in _MEMORY_FILES.items():
        texts = [read_text(memory / name).strip() for name in names]
        sizes = [int(text) for text in texts if text.isdecimal()]  # version 2 says "max" for no limit
        if sizes and sizes[0] < _NO_LIMIT:
            yield HostReading("cgroup.memory_bytes", key, sizes[0])
    for reading in read_pressure(cpu, ".pressure"):
        yield reading._replace(name="cgroup.pressure_s")


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
