# A worker's hook: one call when its part of a step is done, and more for what a sampled step or a training
# step tells beside it. Numbers in, ring records out. Never raises, never blocks.
from dataclasses import dataclass

from otel_llmprism.instrumentation.guard import TIME_EVERY, HookState, Ring, guarded
from otel_llmprism.native.ring_records import (
    UNKNOWN_NS,
    pack_collective,
    pack_step_phases,
    pack_step_rank,
)


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
        self._numbers = (place.rank, place.tp, place.pp, place.dp, place.cp, place.ep)

    def record_rank(
        self,
        step_id: int,
        start_ns: int,
        end_ns: int,
        device_ns: int = UNKNOWN_NS,
        wait_ns: int = UNKNOWN_NS,
    ) -> None:
        """Book this rank's part of a step; a step id below 0 belongs to no recorded step."""
        hook = self.hook  # as guarded() does it, without its call more: this runs in each step
        if step_id < 0 or hook.is_off:
            return
        hook.calls += 1
        clock = hook.clock
        began_ns = 0 if hook.calls % TIME_EVERY else clock()
        try:
            rank, tp, pp, dp, cp, ep = self._numbers
            self._ring.put(
                pack_step_rank(step_id, rank, start_ns, end_ns, device_ns, wait_ns, tp, pp, dp, cp, ep)
            )
        except Exception:  # noqa: BLE001  whatever it is, the user's step goes on
            hook.note_failure()
        finally:
            if began_ns:
                hook.note_call(clock() - began_ns)

    @guarded(None)
    def record_collective(  # noqa: PLR0917  the packer's own order; it runs inside a step
        self,
        step_id: int,
        group: int,
        seq: int,
        op: int,
        bytes_: int,
        start_ns: int,
        end_ns: int,
        device_ns: int = UNKNOWN_NS,
    ) -> None:
        """Book this rank's part in one collective of a sampled step; `group`: derive_group_hash."""
        if step_id >= 0:
            self._ring.put(
                pack_collective(
                    step_id, self._place.rank, group, seq, op, bytes_, start_ns, end_ns, device_ns
                )
            )

    @guarded(None)
    def record_phases(
        self,
        step_id: int,
        iteration: int,
        *,
        forward_ns: int = UNKNOWN_NS,
        backward_ns: int = UNKNOWN_NS,
        optimizer_ns: int = UNKNOWN_NS,
        data_ns: int = UNKNOWN_NS,
        micro_batches: int = 0,
    ) -> None:
        """Book where this rank's time of a training step went; `iteration` is the framework's own number."""
        if step_id >= 0:
            self._ring.put(
                pack_step_phases(
                    step_id,
                    self._place.rank,
                    iteration,
                    forward_ns,
                    backward_ns,
                    optimizer_ns,
                    data_ns,
                    micro_batches,
                )
            )
