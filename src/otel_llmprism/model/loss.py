# What did not make it, per cause: it travels with the data, so that a finding can know how much of the
# picture it did not see.
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loss:
    """Counts of records, by what became of them."""

    dropped: int = 0  # no room, or a budget
    late: int = 0  # came after what it belongs to had left
    malformed: int = 0
    unmatched: int = 0  # its other half never came

    def __add__(self, other: "Loss") -> "Loss":
        return Loss(
            self.dropped + other.dropped,
            self.late + other.late,
            self.malformed + other.malformed,
            self.unmatched + other.unmatched,
        )

    @property
    def total(self) -> int:
        return self.dropped + self.late + self.malformed + self.unmatched

    def share_of(self, kept: int) -> float:
        """Return what part of everything, kept and lost, was lost; 0 when there was nothing."""
        everything = kept + self.total
        return self.total / everything if everything else 0.0


NO_LOSS = Loss()
