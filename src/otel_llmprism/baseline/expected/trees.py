# Boosted trees as plain arrays, evaluated for all rows and trees at once. A split is a ramp between the two
# trained values beside it: exact on trained work, a straight line where none was seen.
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import F32, F64

DEPTH = 4  # every tree is complete, so no link between nodes can be wrong
SPLITS = (1 << DEPTH) - 1
LEAVES = 1 << DEPTH
MAX_ROWS_AT_ONCE = 256  # keeps what is computed within the caches


@dataclass(frozen=True, slots=True)
class Trees:
    """Node n of a tree has the children 2n + 1 and 2n + 2; the last level holds leaves, left to right."""

    ramp_feature: npt.NDArray[np.int32]  # ramps: each one feature, from 0 at `low` to 1 at `high`
    ramp_low: F64
    ramp_high: F64
    ramp: npt.NDArray[np.int32]  # trees x SPLITS: places of ramps
    leaf: F32  # trees x LEAVES

    def predict(self, inputs: F64) -> F64:
        """Return the sum over trees for each row of inputs."""
        total = np.zeros(len(inputs))
        if not len(self.ramp):
            return total
        for begin in range(0, len(inputs), MAX_ROWS_AT_ONCE):
            rows = slice(begin, begin + MAX_ROWS_AT_ONCE)
            total[rows] = self._sum_trees(inputs[rows])
        return total

    def _sum_trees(self, inputs: F64) -> F64:
        reach = (inputs[:, self.ramp_feature] - self.ramp_low) / (self.ramp_high - self.ramp_low)
        share = np.clip(reach, 0.0, 1.0).astype(np.float32).T  # ramps x rows
        leaves = self.leaf.T[:, :, None]  # LEAVES x trees x rows, from the bottom up
        for level in range(DEPTH - 1, -1, -1):
            first = (1 << level) - 1
            right = share[self.ramp[:, first : first + (1 << level)].T]
            leaves = leaves[::2] + right * (leaves[1::2] - leaves[::2])
        total: F64 = leaves[0].sum(axis=0, dtype=np.float64)
        return total


def build_no_trees() -> Trees:
    """Return trees that add nothing."""
    none = np.zeros(0)
    return Trees(
        none.astype(np.int32), none, none,
        np.zeros((0, SPLITS), np.int32), np.zeros((0, LEAVES), np.float32),
    )  # fmt: skip
