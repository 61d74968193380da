# One rank's part of a kept step -> its span, with its phases when it trains, and its collectives below it.
# Pure.
from collections.abc import Iterator

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.collective_spans import MAX_COLLECTIVES, build_collective_spans
from otel_llmprism.exporters.otlp_attributes import AttributeValue, to_key_values
from otel_llmprism.exporters.otlp_spans import IS_REMOTE_KNOWN, SAMPLED
from otel_llmprism.exporters.step_origin import StepOrigin
from otel_llmprism.model.ids import derive_span_id
from otel_llmprism.model.steps import UNKNOWN, LedgerTables
from otel_llmprism.semconv import rank as names

_NS_PER_S = 1e9
_PLACES = (
    (names.RANK_GLOBAL, "rank"),
    (names.RANK_TP, "tp"),
    (names.RANK_PP, "pp"),
    (names.RANK_DP, "dp"),
    (names.RANK_CP, "cp"),
    (names.RANK_EP, "ep"),
)
_PHASES = (
    (names.RANK_FORWARD_S, "forward_ns"),
    (names.RANK_BACKWARD_S, "backward_ns"),
    (names.RANK_OPTIMIZER_S, "optimizer_ns"),
    (names.RANK_DATA_S, "data_ns"),
)


def build_rank_spans(
    tables: LedgerTables, rank_row: int, origin: StepOrigin, trace_id: bytes, root_id: bytes
) -> Iterator[Span]:
    """Yield the span of the rank in `rank_row`, then its collectives'."""
    ranks, identities, collectives = tables.ranks, tables.identities, tables.collectives
    row, identity = int(ranks.step_row[rank_row]), int(ranks.identity_row[rank_row])
    rank = int(identities.rank[identity])
    attributes: dict[str, AttributeValue] = {
        name: int(getattr(identities, column)[identity]) for name, column in _PLACES
    }
    if (wait_ns := ranks.wait_ns[rank_row]) != UNKNOWN:
        attributes[names.RANK_WAIT_S] = int(wait_ns) / _NS_PER_S
    attributes |= _describe_phases(tables, row, rank)
    rows = np.flatnonzero((collectives.step_row == row) & (collectives.rank == rank))
    if len(rows) > MAX_COLLECTIVES:
        attributes[names.RANK_COLLECTIVES_OMITTED] = len(rows) - MAX_COLLECTIVES
    span_id = derive_span_id(trace_id, names.SPAN_RANK, rank)
    yield Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=root_id,
        flags=SAMPLED | IS_REMOTE_KNOWN,
        name=names.SPAN_RANK,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=origin.to_realtime_ns(int(ranks.start_ns[rank_row])),
        end_time_unix_nano=origin.to_realtime_ns(int(ranks.end_ns[rank_row])),
        attributes=to_key_values(attributes),
    )
    yield from build_collective_spans(
        collectives, rows, origin, trace_id, span_id, rank_start_ns=int(ranks.start_ns[rank_row])
    )


def _describe_phases(tables: LedgerTables, row: int, rank: int) -> dict[str, AttributeValue]:
    phases = tables.phases
    found = np.flatnonzero((phases.step_row == row) & (phases.rank == rank))
    if not len(found):
        return {}
    attributes: dict[str, AttributeValue] = {}
    for name, column in _PHASES:
        if (spent_ns := getattr(phases, column)[found[0]]) != UNKNOWN:
            attributes[name] = int(spent_ns) / _NS_PER_S
    if micro_batches := int(phases.micro_batches[found[0]]):
        attributes[names.RANK_MICRO_BATCHES] = micro_batches
    return attributes
