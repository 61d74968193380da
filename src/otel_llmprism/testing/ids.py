# Ids that count up, for tests that compare whole outputs.
import itertools


class SequentialIds:
    """Trace and span ids 1, 2, 3 ... in the widths OTLP wants."""

    def __init__(self, first: int = 1) -> None:
        self._numbers = itertools.count(first)

    def mint_trace_id(self) -> bytes:
        return next(self._numbers).to_bytes(16, "big")

    def mint_span_id(self) -> bytes:
        return next(self._numbers).to_bytes(8, "big")
