# A text file, gzipped or not -> its lines, each bounded; a line beyond the bound is reported and skipped.
# What is damaged in the middle ends the file there.
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

MAX_LINE_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"

PlaceReport = Callable[[str, str], None]  # "line 7", why


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, unpacked where it is gzipped whatever its name says."""
    with path.open("rb") as file:
        is_packed = file.read(2) == GZIP_MAGIC
    return cast("BinaryIO", gzip.open(path, "rb")) if is_packed else path.open("rb")


def read_start(path: Path, size: int) -> bytes:
    """Return the first bytes, unpacked; fewer where the file is short or damaged."""
    with open_bytes(path) as file:
        try:
            return file.read(size)
        except (EOFError, OSError, zlib.error):
            return b""


def read_lines(file: BinaryIO, report: PlaceReport) -> Iterator[tuple[int, str]]:
    """Yield each line with its number from 1; bytes that are no UTF-8 become marks."""
    number = 0
    try:
        while raw := file.readline(MAX_LINE_BYTES):
            number += 1
            if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
                _skip_line(file)
                report(f"line {number}", f"longer than {MAX_LINE_BYTES} bytes")
                continue
            yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace")
    except (EOFError, OSError, zlib.error) as error:
        report(f"line {number + 1}", f"the file ends here or is damaged: {error}")


def _skip_line(file: BinaryIO) -> None:
    while rest := file.readline(MAX_LINE_BYTES):
        if rest.endswith(b"\n"):
            return
