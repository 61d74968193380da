# One moment read on two clocks of a node. Conversion with a stated error is reconstruct's.
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Anchor:
    """CLOCK_MONOTONIC and real time, read together."""

    monotonic_ns: int
    realtime_ns: int
