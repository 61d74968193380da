# What a diagnosis is set to, and whose data it is told. Values only.
from dataclasses import dataclass

S_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SourceKey:
    """One node's part in one run of an engine."""

    engine_id: str
    run: str
    node: str


@dataclass(frozen=True, slots=True)
class DiagnosisConfig:
    """The opening rule and the lifetimes are the design's; the rest are bounds."""

    min_excess_share: float = 0.05  # of busy time
    excess_window_s: float = 10.0
    single_step_ratio: float = 5.0  # of expected
    single_step_s: float = 0.5
    hang_s: float = 10.0
    close_after_s: float = 60.0
    reopen_within_s: float = 600.0
    # How long evidence may take: host samples come once a second, and 2x must be told of within 2 s.
    wait_large_s: float = 1.4  # after the onset of a shift of at least `large_shift`
    wait_small_s: float = 1.5  # after the first alarm of a smaller one
    large_shift: float = 0.45  # as a log ratio: 1.57x
    clear_share: float = 0.5  # of the excess explained: no need to wait for more
    overload_s: float = 5.0  # a queue that drains sooner is a burst
    dismissed_s: float = 3600.0
    update_every_s: float = 10.0
    max_engines: int = 2000
    max_incidents: int = 1000  # open, and closed that may come back
