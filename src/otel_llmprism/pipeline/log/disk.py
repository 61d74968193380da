# The few operations on files that the log needs, in one place so that a test can make them fail.
# Everything raises OSError as the system gave it.
import os
from collections.abc import Sequence
from pathlib import Path


class Disk:
    """The real disk. Files are 0600 and are never followed through a link when made."""

    def create(self, path: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(path, flags, 0o600)

    def open_append(self, path: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(path, flags, 0o600)

    def write(self, fd: int, parts: Sequence[bytes]) -> None:
        """Write all parts; one call to the system when it takes them at once."""
        written = os.writev(fd, parts)
        if written == sum(map(len, parts)):
            return
        left = memoryview(b"".join(parts))[written:]
        while left:
            left = left[os.write(fd, left) :]

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def read(self, fd: int, size: int, at: int) -> bytes:
        return os.pread(fd, size, at)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
