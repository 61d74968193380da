# The scheduler's hook: one call when a step is scheduled, one when its result is back. Numbers in,
# ring records out. Never raises, never blocks.
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from otel_llmprism.instrumentation.guard import TIME_EVERY, HookState, Ring, guarded
from otel_llmprism.instrumentation.keeping import StepKeeper, StepTicket
from otel_llmprism.instrumentation.step_lane import LentSteps
from otel_llmprism.instrumentation.token_sums import TokenSums
from otel_llmprism.native.extension import load_extension
from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_members import CHECK_EVERY
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

# Looking a member up in an enumeration costs as much as a call.
_PREFILL, _DECODE, _MIXED = StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED
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
        self.ring = ring
        self.keeper = keeper
        self._sums = TokenSums()
        keeper.mode = mode
        self._handle_of = _choose_handle_of(ring)
        self._running: RunningSet[str] = RunningSet(self._handle_of)
        self.lent = LentSteps(None, keeper, self.hook)  # nothing, until a scheduler has a lane

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
        total_tokens: int | None = None,
        prefill_tokens: int | None = None,
        may_lend: bool = False,
    ) -> StepTicket:
        """Book a step that gives each request of `tokens` its tokens; `prefill` names the prompts.

        What an engine knows already spares a pass over the batch: `joined` names all that were not in the
        step before (new or resumed), `total_tokens` is the sum over `tokens`, with no request scheduled for
        nothing, and `prefill_tokens` the sum over `prefill`, which is only compared. Sums that do not add
        up are not used, and all of it is held against the batch every CHECK_EVERY steps. `may_lend`: no
        request has prompt left, so what comes next may be the extension's.
        Returns the ticket that travels with the step; NO_STEP for an empty batch or an error.
        """
        hook = self.hook  # as guarded() does it, without its call more: this runs in each step
        if hook.is_off or not tokens:
            return NO_STEP
        hook.calls += 1
        clock = hook.clock
        began_ns = 0 if hook.calls % TIME_EVERY else clock()
        try:
            self.lent.take_back(self._running)
            ticket = self.keeper.admit_step(start_ns)
            self._tell(
                ticket, tokens, prefill, state, start_ns, end_ns, lane, joined, total_tokens, prefill_tokens
            )
            if may_lend and self._sums.are_trusted:
                self.lent.lend(self._running)
        except Exception:  # noqa: BLE001  whatever it is, the user's step goes on
            self._running.repeat_all()  # what the next step tells must not build on this one
            hook.note_failure()
            return NO_STEP
        finally:
            if began_ns:
                hook.note_call(clock() - began_ns)
        return ticket

    def _tell(  # noqa: PLR0917  keywords would cost as much as packing
        self,
        ticket: StepTicket,
        tokens: Mapping[str, int],
        prefill: Collection[str],
        state: EngineState,
        start_ns: int,
        end_ns: int,
        lane: int,
        joined: Collection[str] | None,
        total: int | None,
        prompt: int | None,
    ) -> None:
        step_id, kept, probability, mode = ticket
        requests = len(tokens)
        decoding = requests - len(prefill)
        counted_prompt = sum(map(tokens.__getitem__, prefill)) if prefill else 0
        decode: int | None = decoding
        # One token for each that is not in prefill: what a step is most often.
        if (
            total is None
            or total - counted_prompt != decoding
            or (prompt is not None and prompt != counted_prompt)
            or not step_id % CHECK_EVERY
            or not self._sums.are_trusted
        ):
            total, decode = self._sums.count_tokens(tokens, counted_prompt, total, prompt)
        members = self._running.diff(tokens, prefill, lane, joined, decode)
        waiting, running, preemptions, kv_tokens, kv_usage, graph_mode = state
        record = pack_step_scheduled(
            step_id, start_ns, end_ns, _MIXED if prefill and decoding else _PREFILL if prefill else _DECODE,
            kept, probability, requests, counted_prompt, total - counted_prompt, kv_tokens, waiting, running,
            preemptions, kv_usage, graph_mode, mode, members, lane,
        )  # fmt: skip
        if not self.ring.put(record):
            self._running.repeat_all()

    @guarded(None)
    def record_trained(self, ticket: StepTicket, start_ns: int, end_ns: int) -> None:
        """Book a training iteration that is over: rank 0 alone tells of it, for all ranks."""
        self.ring.put(_pack_whole_step(ticket, StepKind.TRAIN, start_ns, end_ns))

    @guarded(None)
    def record_dummy(self, start_ns: int, end_ns: int) -> None:
        """Book a batch without requests, which a replica computes to keep the others company."""
        self.lent.take_back(self._running)
        ticket = self.keeper.admit_step(start_ns)
        self.ring.put(_pack_whole_step(ticket, StepKind.DUMMY, start_ns, end_ns))

    def forget_running(self) -> None:
        """Forget who runs: while this was asleep nobody told. Only while it is asleep."""
        self.lent.take_back(self._running)
        self._running = RunningSet(self._handle_of)

    @guarded(None)
    def record_left(self, request_ids: Collection[str]) -> None:
        """Take finished, aborted or preempted requests out of the running set."""
        self.lent.take_back(self._running)
        self._running.leave(request_ids)

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
        hook = self.hook
        if hook.is_off:
            return
        hook.calls += 1
        clock = hook.clock
        began_ns = 0 if hook.calls % TIME_EVERY else clock()
        try:
            step_id = ticket[0]
            if step_id >= 0:
                self.ring.put(pack_step_output(step_id, ready_ns, execute_ns, sample_ns, output_ns, gap_ns))
        except Exception:  # noqa: BLE001  whatever it is, the user's step goes on
            hook.note_failure()
        finally:
            if began_ns:
                hook.note_call(clock() - began_ns)

    @guarded(None)
    def record_pause(self, start_ns: int, end_ns: int, reason: int) -> None:
        """Book a time that no step's cycle may include."""
        self.ring.put(pack_pause(start_ns, end_ns, reason))


def _choose_handle_of(ring: Ring) -> Callable[[str], int]:
    extension = load_extension() if getattr(ring, "native", None) is not None else None
    return extension.derive_handle if extension else derive_request_handle


def _pack_whole_step(ticket: StepTicket, kind: StepKind, start_ns: int, end_ns: int) -> bytes:
    step_id, kept, probability, mode = ticket
    scheduled = pack_step_scheduled(
        step_id, start_ns, start_ns, kind, kept, probability, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, mode
    )
    return scheduled + pack_step_output(step_id, end_ns, UNKNOWN_NS, UNKNOWN_NS, UNKNOWN_NS)
