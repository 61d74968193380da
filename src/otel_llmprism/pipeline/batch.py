# What travels between stages: the bytes of one OTLP export request and the receipt they answer to.
from dataclasses import dataclass

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Batch:
    """One Export*ServiceRequest, as it came or cut from one; `payload` is never changed in place."""

    signal: Signal
    payload: bytes
    receipt: Receipt
    arrived_ns: int  # CLOCK_MONOTONIC of the acceptance (of the replay, after a restart)
