# Lends the next steps of vLLM's scheduler to the extension, as long as each can only be one token for each
# request that runs, and takes them back. Nothing of the engine's is known here; without the extension nothing
# is lent.
from typing import Any

from otel_llmprism.instrumentation.guard import HookState, Ring
from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.native.extension import load_extension
from otel_llmprism.native.ring import RunningSet


class LentSteps:
    """One per scheduler; called by its thread. What changes a run from elsewhere revokes what is lent.

    `lane` None: nothing is ever lent.
    """

    def __init__(self, lane: Any, keeper: StepKeeper, hook: HookState) -> None:
        self._lane = lane
        self._keeper = keeper
        self._hook = hook

    @property
    def last_output_ns(self) -> int:
        """When the extension booked a result last."""
        return int(self._lane.last_output_ns) if self._lane is not None else 0

    def lend(self, running: RunningSet[str]) -> None:
        """Lend as many steps as are decided already and need no look at the batch."""
        if self._lane is None or not self._may_lend():
            return
        members, most = running.look_ahead()
        ahead = self._keeper.look_ahead(most)
        if ahead is None or not ahead.kept:
            return
        self._lane.lend(ahead.step, ahead.kept, ahead.probability, ahead.end_ns, members)
        if not self._may_lend():  # whoever changes that revokes afterwards: one of the two sees the other
            self.take_back(running)

    def _may_lend(self) -> bool:
        return not (self._hook.is_off or self._hook.is_suspect or self._keeper.is_deep)

    def take_back(self, running: RunningSet[str]) -> None:
        """Go on where the extension has come to; none is lent any more."""
        if self._lane is None:
            return
        steps, calls, timed_ns = self._lane.take_back()
        if calls:
            self._keeper.skip_lent(steps)
            running.skip_lent(steps)
            self._hook.calls += calls
            for duration_ns in timed_ns:
                self._hook.note_call(duration_ns)


def open_lane(ring: Ring, scheduler: Any, tokenless: dict[str, Any]) -> Any:
    """Return the extension's lane for one scheduler; None where Python has to do it all.

    `tokenless`: requests whose first token is still to be booked; with one in it, a result is Python's.
    """
    extension, native = load_extension(), getattr(ring, "native", None)
    return extension.StepLane(native, scheduler, tokenless) if extension and native is not None else None
