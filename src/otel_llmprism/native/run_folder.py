# The folder that an engine's processes and its exporter share: run.json and one ring per process, in
# memory-backed storage, for this user only.
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  a folder of our own in it, 0700 and checked
RUN_FILE = "run.json"
RUN_VERSION = 1  # 0, the one before, says the same


class RuntimeFolderError(Exception):
    """There is no place for rings; the text says why and how to mend it."""


@dataclass(frozen=True, slots=True)
class RunDescription:
    """What every process of one engine run must agree on."""

    engine_id: str
    run: str  # 32 hex digits
    job_id: str  # empty: derived from the resource
    engine_name: str
    engine_version: str
    model: str
    operation: str  # gen_ai.operation.name of its requests
    steps: str
    starter_pid: int
    starter_ticks: int
    version: int = RUN_VERSION
    ranks: int | None = None  # how many record steps on this node; None: nobody knows yet


def list_runtime_roots(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield where rings may lie, best first. Only memory-backed places: disk writeback stalls stores."""
    if asked := environment.get("OTEL_LLMPRISM_RUNTIME_DIR"):
        yield Path(asked)
        return
    yield SHARED_MEMORY / f"llmprism-{os.geteuid()}"
    if session := environment.get("XDG_RUNTIME_DIR"):
        yield Path(session) / "llmprism"


def make_run_folder(root: Path, description: RunDescription) -> Path:
    """Make root and the run's folder in it and describe the run; OSError or RuntimeFolderError."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(root)
    folder = root / description.run
    folder.mkdir(mode=0o700)
    try:
        descriptor = os.open(folder / RUN_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(description), file)
    except OSError:  # nobody would ever remove a folder that describes nothing
        (folder / RUN_FILE).unlink(missing_ok=True)
        folder.rmdir()
        raise
    return folder


def read_run_description(folder: Path) -> RunDescription:
    """Read run.json; ValueError or OSError when it is absent, foreign or of another version."""
    fields = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    if not isinstance(fields, dict) or fields.get("version") not in (RUN_VERSION, RUN_VERSION - 1):
        raise ValueError(f"{folder / RUN_FILE} is neither of version {RUN_VERSION} nor of the one before")
    try:
        return RunDescription(**fields)
    except TypeError as error:
        raise ValueError(f"{folder / RUN_FILE}: {error}") from error


def check_private(folder: Path) -> None:
    """Raise RuntimeFolderError unless `folder` is a real folder that only this user may enter."""
    status = folder.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_ours or stat.S_IMODE(status.st_mode) & 0o077:
        raise RuntimeFolderError(
            f"{folder} is not a folder of this user with mode 0700: remove it, or set "
            f"OTEL_LLMPRISM_RUNTIME_DIR to a memory-backed folder that is"
        )
