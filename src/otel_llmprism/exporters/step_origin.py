# Whose steps and requests spans speak of. Pure.
from dataclasses import dataclass

from otel_llmprism.model.clocks import Anchor


@dataclass(frozen=True, slots=True)
class StepOrigin:
    """Whose steps these are: what their ids derive from, and the clocks of their node."""

    engine_id: str
    run: bytes
    anchor: Anchor

    def to_realtime_ns(self, monotonic_ns: int) -> int:
        return monotonic_ns - self.anchor.monotonic_ns + self.anchor.realtime_ns
