# Trace batches in, the same with what the sentinel knows appended to our step, request and decode spans. Mode
# inline only, behind the hold. A key that a span has is left as it is; engines' own spans are never touched.
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from otel_llmprism.model.signals import Signal
from otel_llmprism.model.spans import SpanTable
from otel_llmprism.native.otlp import (
    NO_KEYS,
    MalformedRequestError,
    Scalar,
    append_attributes,
    encode_attribute,
    encode_link,
    scan,
)
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.otlp_tables import wrap_spans
from otel_llmprism.semconv import request as request_names
from otel_llmprism.semconv import step as step_names
from otel_llmprism.semconv.finding import FINDING_ID
from otel_llmprism.semconv.sentinel import SENTINEL_STAMPED
from otel_llmprism.service.sentinel.own_mark import has_mark
from otel_llmprism.service.sentinel.verdict_book import RequestAddition, StepVerdict, VerdictBook

CLAIMED = (step_names.SPAN_STEP, request_names.SPAN_REQUEST, request_names.SPAN_DECODE)
_NAMES = tuple(name.encode() for name in CLAIMED)
Edit = tuple[int, bytes]


class EnrichStage:
    """A Stage without state of its own."""

    def __init__(
        self,
        read_verdicts: Callable[[], VerdictBook],
        counters: Counters,
    ) -> None:
        self._read_verdicts = read_verdicts
        self._counters = counters

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        payload = batch.payload
        if batch.signal is not Signal.TRACES or has_mark(payload):
            return (batch,)
        if not any(name in payload for name in _NAMES):
            return (batch,)
        try:
            found = scan(payload, batch.signal, is_checked=True)
        except MalformedRequestError:
            return (batch,)
        table = wrap_spans(payload, found, NO_KEYS)
        edits = [*self._edit_steps(table), *self._edit_requests(table), *self._edit_decodes(table)]
        if not edits:
            return (batch,)
        self._counters.add(SENTINEL_STAMPED, len(edits))
        return (replace(batch, payload=append_attributes(payload, found, sorted(edits))),)

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        """Give nothing: nothing is held."""
        del due_ns
        return ()

    def _edit_steps(self, table: SpanTable) -> Iterator[Edit]:
        for row in _list_rows(table, step_names.SPAN_STEP):
            verdict = self._read_verdicts().find_step(table.trace_id[row].tobytes())
            if verdict is not None:
                yield row, _encode_step(verdict)

    def _edit_requests(self, table: SpanTable) -> Iterator[Edit]:
        for row in _list_rows(table, request_names.SPAN_REQUEST):
            told = self._read_verdicts().find_request(
                table.trace_id[row].tobytes(), table.span_id[row].tobytes()
            )
            if told is not None:
                yield row, _encode_request(told)

    def _edit_decodes(self, table: SpanTable) -> Iterator[Edit]:
        for row in _list_rows(table, request_names.SPAN_DECODE):
            parent = table.parent_span_id[row].tobytes()
            told = self._read_verdicts().find_request(table.trace_id[row].tobytes(), parent)
            if told is not None and told.slow_traces:
                links = [
                    encode_link(trace_id, span_id, {step_names.STEP_ID: step})
                    for trace_id, span_id, step in told.slow_traces
                ]
                yield row, b"".join(links)


def _list_rows(table: SpanTable, name: str) -> list[int]:
    rows: list[int] = np.flatnonzero(table.name.match_text(name)).tolist()
    return rows


def _encode_step(verdict: StepVerdict) -> bytes:
    return _encode(
        {
            step_names.STEP_EXPECTED_S: verdict.expected_s,
            step_names.STEP_RESIDUAL: verdict.residual,
            step_names.STEP_ANOMALOUS: verdict.is_anomalous,
        }
    )


def _encode_request(told: RequestAddition) -> bytes:
    attributes: dict[str, Scalar] = {request_names.REQUEST_SLOW_STEPS: told.slow_steps}
    if told.unexplained_s is not None:
        attributes[request_names.REQUEST_UNEXPLAINED_S] = told.unexplained_s
    if told.finding_id:
        attributes[FINDING_ID] = told.finding_id
    return _encode(attributes)


def _encode(attributes: dict[str, Scalar]) -> bytes:
    return b"".join(encode_attribute(Signal.TRACES, key, value) for key, value in attributes.items())
