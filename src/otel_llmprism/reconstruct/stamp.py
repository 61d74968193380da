# The first enricher: spans that match get fixed attributes appended, everything else passes as it came,
# the same bytes object. Trace batches come in, trace batches go out; other signals are not looked at.
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from otel_llmprism.model.signals import Signal
from otel_llmprism.model.strings import Mask, TextColumn
from otel_llmprism.model.values import Scalar, ValueColumn, ValueType
from otel_llmprism.native import otlp
from otel_llmprism.pipeline.batch import Batch

_SPANS = np.dtype(otlp.SPAN_DTYPE)
_VALUES = np.dtype(otlp.VALUE_DTYPE)


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
        self._config = config
        where = config.where_attribute
        self._keys = otlp.KeySelection(() if where is None else (where,))
        self._fields = b"".join(
            otlp.encode_attribute(Signal.TRACES, key, value) for key, value in config.attributes.items()
        )

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        """Give the batch on, stamped where it matches."""
        if batch.signal is not Signal.TRACES or not self._fields:
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
            found = otlp.scan(payload, Signal.TRACES, self._keys, is_checked=True)
            rows = np.flatnonzero(self._match_spans(payload, found))
            if not len(rows):
                return payload
            return otlp.append_attributes(payload, found, [(row, self._fields) for row in rows.tolist()])
        except ValueError:
            # Accepted once, so it is not for this stage to lose: it passes as it came.
            return payload

    def _match_spans(self, payload: bytes, found: otlp.Scan) -> Mask:
        spans = np.frombuffer(found.records, dtype=_SPANS)
        names = TextColumn(payload, spans["name_offset"], spans["name_length"])
        mask = np.zeros(len(names), dtype=np.bool_)
        for pattern in self._config.span_names:
            is_prefix = pattern.endswith("*")
            mask |= names.match_prefix(pattern[:-1]) if is_prefix else names.match_text(pattern)
        if self._config.where_attribute is not None and mask.any():
            mask &= self._match_where(payload, found)
        return mask

    def _match_where(self, payload: bytes, found: otlp.Scan) -> Mask:
        cells = np.frombuffer(found.values, dtype=_VALUES)
        column = ValueColumn(payload, cells["type"], cells["bits"], cells["offset"], cells["length"])
        if self._config.equals is not None:
            return column.match_value(self._config.equals)
        is_there: Mask = column.types != ValueType.ABSENT
        return is_there
