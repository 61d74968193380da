# The scheduler's hook: one call when a step is scheduled, one when its result is back. Numbers in,
# ring records out. Never raises, never blocks.
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from otel_llmprism.instrumentation.guard import HookState, Ring, guarded
from otel_llmprism.instrumentation.keeping import StepKeeper, StepTicket
from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_records import (
    UNKNOWN_NS,
    GraphMode,
    Kept,
    Mode,
    StepKind,
    derive_request_handle,
    pack_pause,
    pack_step_output,
    pack_step_scheduled,
)

NO_STEP = StepTicket(-1, Kept.NO, 0.0)


class EngineState(NamedTuple):
    """What the scheduler knows beside the batch when it schedules a step."""

    waiting: int = 0
    running: int = 0
    preemptions: int = 0
    kv_tokens: int = 0
    kv_usage: float = 0.0
    graph_mode: int = GraphMode.UNKNOWN


class StepRecorder:
    """One per scheduler; called by its thread alone."""

    def __init__(self, ring: Ring, keeper: StepKeeper, mode: Mode) -> None:
        self.hook = HookState("step", ring)
        self._ring = ring
        self._keeper = keeper
        self._mode = mode
        self._running: RunningSet[str] = RunningSet(derive_request_handle)

    @guarded(NO_STEP)
    def record_scheduled(
        self,
        tokens: Mapping[str, int],
        prefill: Collection[str],
        state: EngineState,
        start_ns: int,
        end_ns: int,
        *,
        lane: int = 0,
        joined: Collection[str] | None = None,
    ) -> StepTicket:
        """Book a step that gives each request of `tokens` its tokens; `prefill` names the prompts.

        `joined` names all that were not in the step before (new or resumed), where that is known.
        Returns the ticket that travels with the step; NO_STEP for an empty batch or an error.
        """
        if not tokens:
            return NO_STEP
        ticket = self._keeper.admit_step(start_ns)
        try:
            members = self._running.diff(tokens, prefill, lane, joined)
            record = self._pack(
                ticket,
                sum(tokens.values()),
                sum(map(tokens.__getitem__, prefill)),
                kind=_tell_kind(len(tokens), len(prefill)),
                requests=len(tokens),
                state=state,
                times_ns=(start_ns, end_ns),
                members=members,
                lane=lane,
            )
        except Exception:
            self._running.repeat_all()  # what the next step tells must not build on this one
            raise
        if not self._ring.put(record):
            self._running.repeat_all()
        return ticket

    def _pack(
        self,
        ticket: StepTicket,
        total_tokens: int,
        prefill_tokens: int,
        *,
        kind: StepKind,
        requests: int,
        state: EngineState,
        times_ns: tuple[int, int],
        members: Sequence[tuple[int, int, int]],
        lane: int,
    ) -> bytes:
        return pack_step_scheduled(
            ticket.step_id,
            *times_ns,
            kind,
            ticket.kept,
            ticket.probability,
            requests,
            prefill_tokens,
            total_tokens - prefill_tokens,
            state.kv_tokens,
            state.waiting,
            state.running,
            state.preemptions,
            state.kv_usage,
            state.graph_mode,
            self._mode,
            members,
            lane,
        )

    @guarded(None)
    def record_left(self, request_ids: Collection[str]) -> None:
        """Take finished, aborted or preempted requests out of the running set."""
        self._running.leave(request_ids)

    @guarded(None)
    def record_output(
        self,
        ticket: StepTicket,
        ready_ns: int,
        *,
        execute_ns: int = UNKNOWN_NS,
        sample_ns: int = UNKNOWN_NS,
        output_ns: int = UNKNOWN_NS,
        gap_ns: int = UNKNOWN_NS,
    ) -> None:
        """Book that the scheduler's process has the step's result since `ready_ns`."""
        if ticket.step_id >= 0:
            self._ring.put(
                pack_step_output(ticket.step_id, ready_ns, execute_ns, sample_ns, output_ns, gap_ns)
            )

    @guarded(None)
    def record_pause(self, start_ns: int, end_ns: int, reason: int) -> None:
        """Book a time that no step's cycle may include."""
        self._ring.put(pack_pause(start_ns, end_ns, reason))


def _tell_kind(requests: int, prefilling: int) -> StepKind:
    if prefilling == 0:
        return StepKind.DECODE
    return StepKind.PREFILL if prefilling == requests else StepKind.MIXED
