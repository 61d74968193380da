# A worker's hook: one call when its part of a step is done. Never raises.
from dataclasses import dataclass

from otel_llmprism.instrumentation.guard import HookState, Ring, guarded
from otel_llmprism.native.ring_records import UNKNOWN_NS, pack_step_rank


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a worker stands: its global rank and its place in each kind of parallelism."""

    rank: int
    tp: int = 0
    pp: int = 0
    dp: int = 0
    cp: int = 0
    ep: int = 0


class RankRecorder:
    """One per worker process; called by its thread alone."""

    def __init__(self, ring: Ring, place: RankPlace) -> None:
        self.hook = HookState("rank", ring)
        self._ring = ring
        self._place = place

    @guarded(None)
    def record_rank(
        self,
        step_id: int,
        start_ns: int,
        end_ns: int,
        device_ns: int = UNKNOWN_NS,
        wait_ns: int = UNKNOWN_NS,
    ) -> None:
        """Book this rank's part of a step; a step id below 0 belongs to no recorded step."""
        if step_id < 0:
            return
        place = self._place
        record = pack_step_rank(
            step_id,
            place.rank,
            start_ns,
            end_ns,
            device_ns,
            wait_ns,
            place.tp,
            place.pp,
            place.dp,
            place.cp,
            place.ep,
        )
        self._ring.put(record)
