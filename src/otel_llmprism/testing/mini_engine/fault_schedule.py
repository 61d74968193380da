# When the mini engine is to be slow, where and by how much: a file of JSON lines in, entries out. Knows no
# engine: the parts that ask are slowed by fault_injector.
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

MAX_ENTRIES = 10_000
MAX_INTENSITY = 100.0


class Place(StrEnum):
    """Where it strikes."""

    SCHEDULER = "scheduler"
    FRONT_END = "front_end"
    OPERATOR = "operator"  # on all ranks
    RANK = "rank"  # the same operators, on one rank alone
    KV_CACHE = "kv_cache"  # blocks are taken away: 2.0 leaves half of what is in use
    LOAD = "load"  # arrivals come so many times faster


class Manner(StrEnum):
    """What the time is spent with: computing, or waiting for something that computes elsewhere."""

    SPIN = "spin"
    SLEEP = "sleep"


class ScheduleError(ValueError):
    """What is wrong with a schedule, in one line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One fault; times are seconds since the run's origin. `intensity` 1.3: 1.3 times as slow."""

    id: str
    place: Place
    begin_s: float
    end_s: float
    intensity: float
    rank: int = 0
    manner: Manner = Manner.SPIN


def read_schedule(path: Path) -> tuple[Entry, ...]:
    """Return the entries in order of time; raises ScheduleError."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if len(lines) > MAX_ENTRIES:
        raise ScheduleError(f"{path}: more than {MAX_ENTRIES} faults")
    entries = [_read_line(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
    return tuple(sorted(entries, key=lambda entry: entry.begin_s))


def write_schedule(path: Path, entries: tuple[Entry, ...]) -> None:
    path.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in entries), encoding="utf-8")


def _read_line(line: str, where: str) -> Entry:
    try:
        fields = json.loads(line)
        fields |= {"place": Place(fields["place"]), "manner": Manner(fields.get("manner", Manner.SPIN))}
        entry = Entry(**fields)
        is_sound = 0 <= entry.begin_s < entry.end_s and 1 < entry.intensity <= MAX_INTENSITY
    except (ValueError, TypeError, KeyError) as error:
        raise ScheduleError(f"{where}: {error}") from error
    if not is_sound:
        raise ScheduleError(f"{where}: begin before end; intensity above 1, up to {MAX_INTENSITY:g}")
    return entry
