# Which rank each of the engine's processes is: read once from the rank records in its own ring.
import numpy as np

from otel_llmprism.native.ring_dtypes import RING_DTYPES
from otel_llmprism.native.ring_layout import SLOT_BYTES
from otel_llmprism.native.ring_records import Kind

_RANK_DTYPE = np.dtype(RING_DTYPES[Kind.STEP_RANK])


class RankPlaces:
    """Ranks by pid. A process that records several ranks is known by the first that it told."""

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}

    def note(self, pid: int, slots: bytes) -> None:
        """Look for the rank of `pid` in what was drained from its ring."""
        if pid in self._ranks:
            return
        raw = np.frombuffer(slots, dtype=np.uint8).reshape(-1, SLOT_BYTES)
        kinds = raw[:, :2].copy().view("<u2").ravel()
        found = np.flatnonzero(kinds == Kind.STEP_RANK)
        if len(found):
            self._ranks[pid] = int(raw[found[0]].view(_RANK_DTYPE)[0]["rank"])

    def label(self, pids: list[int]) -> dict[int, int]:
        """Return the ranks of those of `pids` that are known to have one, and forget all other processes."""
        self._ranks = {pid: rank for pid, rank in self._ranks.items() if pid in pids}
        return dict(self._ranks)
