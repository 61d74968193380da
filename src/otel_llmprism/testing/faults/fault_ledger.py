# The ledger of what was injected, as JSON lines: layer, target, start, end, intensity, id, after paper 004,
# Appendix E. Times are CLOCK_MONOTONIC in ns, as a step's are. Knows no fault.
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FaultEntry:
    """One injected fault; `kind` is the evaluation's name for it, `target` what should be named for it."""

    layer: str  # software, host, memory, communication, load
    target: str
    start: int
    end: int
    intensity: float
    id: str
    kind: str


def write_ledger(path: Path, entries: Iterable[FaultEntry]) -> None:
    lines = (json.dumps(asdict(entry)) + "\n" for entry in sorted(entries, key=lambda entry: entry.start))
    path.write_text("".join(lines), encoding="utf-8")


def read_ledger(path: Path) -> list[FaultEntry]:
    """Return the entries in order of time; ValueError for what is no ledger."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return sorted(
            (FaultEntry(**json.loads(line)) for line in lines if line), key=lambda entry: entry.start
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a fault ledger: {error}") from error
