# A real file system of a few MiB, to see what a full or read-only disk does. Needs root; says so otherwise.
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path


class CannotMountError(Exception):
    """There is no small disk here; the text says why."""


@contextlib.contextmanager
def mount_small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Give an empty tmpfs of that size on `folder` (made when absent) until the end of the block."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        raise CannotMountError("needs root, to mount a small file system")
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes},mode=700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        raise CannotMountError("mounting a tmpfs is not allowed here")
    try:
        yield folder
    finally:
        # Lazily: a test that failed may still hold a file, and a mount left behind would outlive the tests.
        unmount = ["umount", "-l", str(folder)]
        subprocess.run(unmount, check=True)


def make_read_only(folder: Path) -> None:
    """Let nobody write to a mounted disk any more, root included."""
    remount = ["mount", "-o", "remount,ro", str(folder)]
    subprocess.run(remount, check=True)


def fill_disk(folder: Path) -> Path:
    """Take all room that is left and return the file that holds it."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast
