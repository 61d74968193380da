# What every real fault on this machine is: started and stopped by whoever runs it, with a say in what is
# missing where it cannot be made. Each ends only what it began.
from pathlib import Path
from shutil import which
from typing import Protocol


class UnavailableError(RuntimeError):
    """This machine cannot make that fault; the text says what is missing."""


class Fault(Protocol):
    """`layer` and `target` are those of the fault ledger; `stop` and `close` may come twice."""

    @property
    def layer(self) -> str: ...

    @property
    def target(self) -> str: ...

    def prepare(self) -> None:
        """Make what it needs, changing nothing yet; raises UnavailableError."""

    def start(self, intensity: float) -> None:
        """Begin; 2.0: what is struck should become about twice as slow, where that can be chosen."""

    def stop(self) -> None: ...

    def close(self) -> None:
        """Take away what `prepare` made."""


def find_program(name: str, package: str) -> Path:
    """Return a program's path; raises UnavailableError that names the package to install."""
    for folder in (None, "/usr/sbin:/sbin"):
        if found := which(name, path=folder):
            return Path(found)
    raise UnavailableError(f"`{name}` is not installed (package {package})")
