# The ids of requests, read from a ledger's text column when somebody asks for them.
import numpy as np

from otel_llmprism.model.steps import U8, U64, ArrivalTable


class RequestTexts:
    """Finds the texts of arrival rows; keeps only where each row's text begins."""

    def __init__(self, arrivals: ArrivalTable, text: U8) -> None:
        sizes = arrivals.request_id_bytes.astype(np.int64) + arrivals.external_rest_bytes
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._arrivals = arrivals
        self._text = text

    def read_request_id(self, row: int) -> str:
        start = int(self._starts[row])
        return _decode(self._text[start : start + int(self._arrivals.request_id_bytes[row])])

    def read_external_id(self, row: int) -> str:
        """Return the caller's own id; empty when there was none."""
        start = int(self._starts[row])
        own_end = start + int(self._arrivals.request_id_bytes[row])
        shared = self._text[start : start + int(self._arrivals.external_shared_bytes[row])]
        rest = self._text[own_end : own_end + int(self._arrivals.external_rest_bytes[row])]
        return _decode(np.concatenate([shared, rest]))

    def read_trace_id(self, row: int) -> bytes:
        arrivals = self._arrivals
        return _to_bytes(arrivals.trace_id_high, row) + _to_bytes(arrivals.trace_id_low, row)

    def read_span_id(self, row: int) -> bytes:
        return _to_bytes(self._arrivals.span_id, row)

    def read_parent_span_id(self, row: int) -> bytes:
        return _to_bytes(self._arrivals.parent_span_id, row)


def _decode(raw: U8) -> str:
    return raw.tobytes().decode("utf-8", "replace")


def _to_bytes(column: U64, row: int) -> bytes:
    return column[row : row + 1].tobytes()
