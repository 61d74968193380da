# Which clock a table's times are on, and one moment read on two of them. Conversion with a stated error is
# reconstruct's; this is the plain shift that a node's own anchor allows.
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt


class Clock(StrEnum):
    MONOTONIC = "monotonic"  # of the writing node, tied to real time by anchors
    REALTIME = "realtime"  # of a host
    GPU = "gpu"
    ALIGNED = "aligned"


@dataclass(frozen=True, slots=True)
class Anchor:
    """One moment on both clocks of a node."""

    monotonic_ns: int
    realtime_ns: int

    def shift_to_realtime(self, times_ns: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return monotonic times as real time; sums wrap around, as unsigned columns do."""
        return times_ns + np.uint64((self.realtime_ns - self.monotonic_ns) % (1 << 64))
