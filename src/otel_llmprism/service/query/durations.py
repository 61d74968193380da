# Durations as people and Jaeger's clients write them: "1.5s", "1h30m", "250us", "2d".
import re
from decimal import Decimal

_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek mu, which some clients write
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
    "w": 7 * 86400 * 10**9,
}
_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?)(ns|us|µs|μs|ms|s|m|h|d|w)")
MAX_TEXT = 64


def parse_duration_ns(text: str) -> int:
    """Return nanoseconds; raises ValueError for anything but parts of number and unit."""
    if text == "0":
        return 0
    if len(text) > MAX_TEXT:
        raise ValueError("too long")
    total = Decimal(0)
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise ValueError("no duration")
        total += Decimal(part[1]) * _UNITS_NS[part[2]]
        at = part.end()
    if not at:
        raise ValueError("empty")
    return int(total)
