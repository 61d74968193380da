# Control groups of our own, version 1 or 2: made, filled with processes, limited, removed. Their names tell
# who made them, so that those of a run that crashed are found and removed by the next.
import os
from dataclasses import dataclass
from pathlib import Path

from otel_llmprism.testing.faults.fault import UnavailableError

ROOT = Path("/sys/fs/cgroup")
PREFIX = "llmprism-fault-"
_PERIOD_US = 20_000  # short, so that throttling reaches every step
_MIN_QUOTA_US = 1000  # what the kernel takes
_NO_LIMIT = {1: "-1", 2: "max"}


@dataclass(frozen=True, slots=True)
class ControlGroup:
    folder: Path
    version: int

    def add_process(self, pid: int) -> None:
        """Move a process with all its threads in here."""
        _write(self.folder / "cgroup.procs", str(pid))

    def limit_cpu(self, cores: float | None) -> None:
        """Allow so many cores' worth of time; None: no limit."""
        none, period_us = _NO_LIMIT[self.version], _PERIOD_US
        quota = none if cores is None else str(max(_MIN_QUOTA_US, round(cores * period_us)))
        if self.version == 2:
            _write(self.folder / "cpu.max", f"{quota} {period_us}")
        else:
            _write(self.folder / "cpu.cfs_period_us", str(period_us))
            _write(self.folder / "cpu.cfs_quota_us", quota)

    def limit_memory(self, size_bytes: int | None) -> None:
        """Allow so much memory; None: no limit. OSError when what is in use cannot be pressed below it."""
        name = "memory.high" if self.version == 2 else "memory.limit_in_bytes"
        _write(self.folder / name, _NO_LIMIT[self.version] if size_bytes is None else str(size_bytes))

    def wait_when_full(self) -> None:
        """Let a process that needs more than its limit wait instead of being killed; version 2 does."""
        if self.version == 1:
            _write(self.folder / "memory.oom_control", "1")

    def read_memory(self) -> dict[str, int]:
        """Return bytes in use by kind, as the kernel names them (`anon` or `rss`, `file` or `cache`)."""
        lines = (self.folder / "memory.stat").read_text(encoding="utf-8").splitlines()
        return {name: int(size) for name, _, size in (line.partition(" ") for line in lines)}

    def remove(self) -> None:
        """Give its processes back to the group above and remove it; a group that is gone is no error."""
        if self.folder.is_dir():
            members = self.folder / "cgroup.procs"
            for pid in members.read_text(encoding="utf-8").split() if members.exists() else ():
                try:
                    _write(self.folder.parent / "cgroup.procs", pid)
                except OSError:
                    continue  # it ended meanwhile
            self.folder.rmdir()


def make_group(controller: str, name: str, root: Path = ROOT) -> ControlGroup:
    """Make a group under `cpu` or `memory`; raises UnavailableError that says what is missing."""
    version = find_version(controller, root)
    base = root / controller if version == 1 else root
    group = ControlGroup(base / f"{PREFIX}{os.getpid()}-{name}", version)
    try:
        if version == 2:
            _write(base / "cgroup.subtree_control", f"+{controller}")
        group.folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"no control group can be made: {error} (root is needed)") from error
    return group


def find_version(controller: str, root: Path = ROOT) -> int:
    """Return where a controller is mounted; raises UnavailableError."""
    if (root / controller / "cgroup.procs").exists():
        return 1
    listed = root / "cgroup.controllers"
    if listed.exists() and controller in listed.read_text(encoding="utf-8").split():
        return 2
    raise UnavailableError(f"the cgroup controller `{controller}` is not mounted at {root}")


def remove_stale_groups(root: Path = ROOT) -> list[Path]:
    """Remove the groups whose maker is gone; return them."""
    removed = []
    for base in (root, root / "cpu", root / "memory"):
        for folder in base.glob(f"{PREFIX}*"):
            maker = folder.name.removeprefix(PREFIX).partition("-")[0]
            if maker.isdecimal() and not Path(f"/proc/{maker}").exists():
                ControlGroup(folder, 1 if base != root else 2).remove()
                removed.append(folder)
    return removed


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
