# One number about the host beside an engine, and how /proc and /sys files are read: bounded, and absent
# files simply give nothing.
from pathlib import Path
from typing import NamedTuple

_MAX_BYTES = 1 << 20  # /proc/stat of a host with hundreds of processors


class HostReading(NamedTuple):
    """`name` says what and in which unit; `instance` which state or thread; sums only rise."""

    name: str
    instance: str
    value: float
    pid: int = 0  # 0: of the host as a whole


def read_text(path: Path) -> str:
    """Return a small file's text, or nothing when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def read_numbers(path: Path) -> dict[str, int]:
    """Read `key value` lines (a colon and a unit may follow the key and the value)."""
    numbers = {}
    for line in read_text(path).splitlines():
        words = line.split(maxsplit=2)
        if len(words) > 1 and words[1].isdecimal():
            numbers[words[0].rstrip(":")] = int(words[1])
    return numbers
