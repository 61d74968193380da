# Durations and sizes as people write them: `1m30s`, `64MiB`. Text in, seconds or bytes out, and back.
import math
import re

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
DURATION_PATTERN = r"^(\s*\d+(\.\d+)?\s*(ns|us|µs|ms|s|m|h|d))+\s*$|^\s*0\s*$"
SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?\s*$"


def parse_duration(value: object) -> float:
    """Return seconds of `2s`, `1m30s`, `250ms`; a bare number is refused, but for 0."""
    if isinstance(value, str):
        text = value.strip()
        parts = _DURATION_PART.findall(text)
        if parts and "".join(_DURATION_PART.sub("", text).split()) == "":
            return math.fsum(float(number) * _SECONDS[unit] for number, unit in parts)
        value = 0 if text == "0" else value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0:
        return 0.0
    raise ValueError("write a duration with its unit, such as 2s, 250ms or 1m30s")


def parse_size(value: object) -> int:
    """Return bytes of `64MiB`, `10kB` or a bare number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in _BYTES:
        raise ValueError("write a size such as 64MiB, 10kB or a number of bytes")
    return round(float(match[1]) * _BYTES[match[2]])


def format_duration(seconds: float) -> str:
    """Return the shortest form that parses back to the same number."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        number = f"{seconds / factor:.12g}"
        if "e" not in number and (unit == "ms" or float(number) >= 1 or seconds == 0):
            return f"{number}{unit}"
    return f"{seconds:.12f}s"


def format_size(size: int) -> str:
    """Return whole GiB, MiB or KiB where the size is one, else the bytes."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return str(size)
