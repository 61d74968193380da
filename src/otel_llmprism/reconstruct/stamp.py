# The first enricher: spans that match get fixed attributes appended, everything else passes as it came,
# the same bytes object. Trace batches come in, trace batches go out; other signals are not looked at.
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from otel_llmprism.model.signals import Signal
from otel_llmprism.model.values import Scalar
from otel_llmprism.native import otlp
from otel_llmprism.pipeline.batch import Batch


@dataclass(frozen=True, slots=True)
class StampConfig:
    """Which spans to stamp (all that are asked for must hold) and with what."""

    span_names: tuple[str, ...] = ("*",)  # exact, or a prefix that ends in *
    where_attribute: str | None = None  # the span must have this attribute ...
    equals: Scalar | None = None  # ... with this value; None: whatever its value
    attributes: Mapping[str, Scalar] = field(default_factory=dict)


class StampStage:
    """A pipeline stage without state. A key that a span has already is left as it is."""

    def __init__(self, config: StampConfig) -> None:
        fields = b"".join(
            otlp.encode_attribute(Signal.TRACES, key, value) for key, value in config.attributes.items()
        )
        self._rule = otlp.StampRule(config.span_names, config.where_attribute, config.equals, fields)

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        """Give the batch on, stamped where it matches."""
        if batch.signal is not Signal.TRACES or not self._rule.fields:
            return (batch,)
        payload = self._stamp_payload(batch.payload)
        if payload is batch.payload:
            return (batch,)
        return (Batch(batch.signal, payload, batch.receipt, batch.arrived_ns),)

    def flush(self, due_ns: int, /) -> Iterable[Batch]:  # noqa: ARG002 - the Stage protocol; nothing is held
        """Give nothing: nothing is held."""
        return ()

    def _stamp_payload(self, payload: bytes) -> bytes:
        try:
            return otlp.stamp_spans(payload, self._rule)
        except ValueError:
            # Accepted once, so it is not for this stage to lose: it passes as it came.
            return payload
