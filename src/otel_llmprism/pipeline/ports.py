# The two ends of the pipeline as receivers and exporters see them. Protocols only.
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch


class Outcome(Enum):
    ACCEPTED = "accepted"
    BUSY = "busy"  # a bound is reached: gRPC RESOURCE_EXHAUSTED, HTTP 429
    UNAVAILABLE = "unavailable"  # starting, draining or the log failed: gRPC UNAVAILABLE, HTTP 503


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Outcome
    retry_after_s: float = 0.0
    why: str = ""


ACCEPTED = Verdict(Outcome.ACCEPTED)


class Ingress(Protocol):
    """Where a receiver puts well-framed requests. Called from any thread."""

    def offer(self, signal: Signal, payload: bytes, /) -> Verdict:
        """Accept (durable as configured once this returns ACCEPTED) or refuse with a retry hint."""
        ...


class Sink(Protocol):
    """Where the last stage's batches go. Called from the pipeline thread only."""

    def start(self) -> None: ...

    def send(self, batch: Batch, /) -> None:
        """Take over `batch`: settle its receipt once, on acknowledgement or counted rejection.

        Blocks while its in-flight bound is reached; never drops for lack of room.
        """
        ...

    def stop(self, deadline_ns: int) -> None:
        """Finish what is in flight until `deadline_ns`; what is left stays unsettled (the log has it)."""
        ...


class Source(Protocol):
    """A receiver: start() returns once it listens; stop() once it accepts nothing more."""

    def start(self) -> None: ...

    def stop(self, deadline_ns: int) -> None: ...
