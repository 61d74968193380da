# What a fit may use and asks for, and the two ways in which expected time says no. Knows no data.
from dataclasses import dataclass


class TooFewStepsError(ValueError):
    """No kind of step has enough rows in enough groups to be learned from."""


class BaselineFormatError(ValueError):
    """Bytes that are no expected-time model of a version known here; one line says why."""


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How much is asked before an answer is given, and how large a model may get."""

    min_steps: int = 200  # of one kind
    min_groups: int = 5
    max_error: float = 0.3  # median |ln(cycle / expected)| out of fold above which a kind gives no answer
    max_rows: int = 20_000  # of one kind; more are thinned, rare work last
    folds: int = 5
    resources: int = 4  # what steps can wait for at the same time; the slowest of them counts
    terms: int = 3  # kinds of work that queue for one resource
    starts: int = 6
    members: int = 2  # structures of the best starts that are averaged
    use_trees: bool = True
    trees: int = 120
    tree_rate: float = 0.1
    max_features: int = 12
    widening: float = 0.25  # spread added per doubling beyond the trained work, in quadrature
