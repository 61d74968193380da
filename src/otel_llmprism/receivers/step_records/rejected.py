# Keeps what was wrong with inputs: every row counted, the first few remembered with place and reason.
from dataclasses import dataclass, field
from pathlib import Path

MAX_REMEMBERED = 20


@dataclass(slots=True)
class RejectedRows:
    """Of all inputs together; call it as the readers' report."""

    count: int = 0
    first: list[tuple[Path, str, str]] = field(default_factory=list)

    def __call__(self, path: Path, place: str, why: str) -> None:
        self.count += 1
        if len(self.first) < MAX_REMEMBERED:
            self.first.append((path, place, why))

    def describe(self) -> list[str]:
        """Return one line each for the first, and one for the rest."""
        lines = [f"{path}: {place}: {why}" if place else f"{path}: {why}" for path, place, why in self.first]
        rest = self.count - len(self.first)
        return [*lines, f"{rest} more rejected"] if rest else lines
