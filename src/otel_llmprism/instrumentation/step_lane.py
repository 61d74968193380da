# Lends the next steps of vLLM's scheduler to the extension, as long as each can only be one token for each
# request that runs, and takes them back. Nothing of the engine's is known here; without the extension nothing
# is lent.
from typing import Any

from otel_llmprism.instrumentation.guard import HookState
from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.native.extension import load_extension
from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_members import CHECK_EVERY


class LentSteps:
    """One per scheduler; called by its thread. What changes a run from elsewhere revokes what is lent."""

    def __init__(self, lane: Any, keeper: StepKeeper, hook: HookState) -> None:
        self.lane = lane
        self._keeper = keeper
        self._hook = hook

    @property
    def last_output_ns(self) -> int:
        return int(self.lane.last_output_ns)

    def lend(self, running: RunningSet[str]) -> None:
        """Lend as many steps as are decided already and need no look at the batch."""
        members, most = running.look_ahead()
        ahead = self._keeper.look_ahead(min(most, -self._keeper.next_step % CHECK_EVERY))
        if ahead is None or not ahead.kept:
            return
        self.lane.lend(ahead.step, ahead.kept, ahead.probability, ahead.end_ns, members)
        # Whoever changes one of these revokes what is lent afterwards: one of the two sees the other.
        if self._hook.is_off or self._hook.is_suspect or self._keeper.is_deep:
            self.take_back(running)

    def take_back(self, running: RunningSet[str]) -> None:
        """Go on where the extension has come to; none is lent any more."""
        steps, calls, timed_ns = self.lane.take_back()
        if calls:
            self._keeper.skip_lent(steps)
            running.skip_lent(steps)
            self._hook.calls += calls
            for duration_ns in timed_ns:
                self._hook.note_call(duration_ns)


def open_lane(ring: Any, scheduler: Any, tokenless: dict[str, Any]) -> Any:
    """Return a lane of the extension that writes into this ring; None where Python has to do it all."""
    extension, native = load_extension(), getattr(ring, "native", None)
    return extension.StepLane(native, scheduler, tokenless) if extension and native is not None else None
