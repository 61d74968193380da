# The collectives of one rank in a kept step -> spans below the rank's. Ids are derived, so that whoever
# makes them makes the same. Pure.
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.otlp_attributes import AttributeValue, to_key_values
from otel_llmprism.exporters.otlp_spans import IS_REMOTE_KNOWN, SAMPLED
from otel_llmprism.exporters.step_origin import StepOrigin
from otel_llmprism.model.ids import derive_span_id
from otel_llmprism.model.steps import UNKNOWN, CollectiveTable
from otel_llmprism.semconv import collective as names

MAX_COLLECTIVES = 64  # of one rank and step; the rest is counted on the rank
_NS_PER_S = 1e9

Rows = npt.NDArray[np.intp]


def build_collective_spans(
    collectives: CollectiveTable,
    rows: Rows,
    origin: StepOrigin,
    trace_id: bytes,
    rank_span_id: bytes,
    *,
    rank_start_ns: int,
) -> Iterator[Span]:
    """Yield a span for each of one rank's collectives in `rows`, the first MAX_COLLECTIVES of them.

    One that the device timed has no place in time: it begins with its rank.
    """
    for row in rows[:MAX_COLLECTIVES].tolist():
        start, spent_ns = collectives.start_ns[row], _measure(collectives, row)
        start_ns = rank_start_ns if start == UNKNOWN else int(start)
        group, seq = int(collectives.group[row]), int(collectives.seq[row])
        yield Span(
            trace_id=trace_id,
            # A rank's own numbers tell its collectives apart: which group's, and which of that.
            span_id=derive_span_id(trace_id + rank_span_id, f"{names.SPAN_COLLECTIVE}/{group:016x}", seq),
            parent_span_id=rank_span_id,
            flags=SAMPLED | IS_REMOTE_KNOWN,
            name=names.SPAN_COLLECTIVE,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=origin.to_realtime_ns(start_ns),
            end_time_unix_nano=origin.to_realtime_ns(start_ns + (spent_ns or 0)),
            attributes=to_key_values(_describe(collectives, row, spent_ns)),
        )


def _measure(collectives: CollectiveTable, row: int) -> int | None:
    if (device_ns := collectives.device_ns[row]) != UNKNOWN:
        return int(device_ns)
    end = collectives.end_ns[row]
    return None if end == UNKNOWN else max(0, int(end) - int(collectives.start_ns[row]))


def _describe(collectives: CollectiveTable, row: int, spent_ns: int | None) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        names.COLLECTIVE_GROUP: f"{int(collectives.group[row]):016x}",
        names.COLLECTIVE_SEQ: int(collectives.seq[row]),
        names.COLLECTIVE_BYTES: int(collectives.bytes[row]),
    }
    if spent_ns is not None:
        attributes[names.COLLECTIVE_WAIT_S] = spent_ns / _NS_PER_S
    if 0 < (op := int(collectives.op[row])) <= len(names.OPS):
        attributes[names.COLLECTIVE_OP] = names.OPS[op - 1]
    return attributes
