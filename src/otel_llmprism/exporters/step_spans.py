# One kept step of the ledger -> its root span, linked to requests; below it what rank_spans.py makes of its
# ranks. Ids are derived, so that exporter, processor and `steps --as-trace` make the same spans. Pure.
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.otlp_attributes import Attributes, AttributeValue, to_key_values
from otel_llmprism.exporters.otlp_spans import IS_REMOTE_KNOWN, SAMPLED
from otel_llmprism.exporters.rank_spans import build_rank_spans
from otel_llmprism.exporters.step_origin import StepOrigin as StepOrigin  # noqa: PLC0414  comes with steps
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.model.steps import UNKNOWN, LedgerTables, StepTable
from otel_llmprism.semconv import request as request_names
from otel_llmprism.semconv import step as names

GRAPH_MODES = ("", "none", "piecewise", "full")
MODES = ("off", "sentinel", "deep")
_NS_PER_S = 1e9
_COUNTS = (
    (names.STEP_REQUESTS, "requests"),
    (names.STEP_PREFILL_TOKENS, "prefill_tokens"),
    (names.STEP_DECODE_TOKENS, "decode_tokens"),
    (names.STEP_KV_TOKENS, "kv_tokens"),
    (names.STEP_WAITING, "waiting"),
    (names.STEP_PREEMPTIONS, "preemptions"),
)
_DURATIONS = (
    (names.STEP_CYCLE_S, "cycle_ns"),
    (names.STEP_GAP_S, "gap_ns"),
    (names.STEP_EXECUTE_S, "execute_ns"),
    (names.STEP_SAMPLE_S, "sample_ns"),
    (names.STEP_OUTPUT_S, "output_ns"),
)


@dataclass(frozen=True, slots=True)
class RequestLink:
    """One sampled request in a step and what it got there."""

    trace_id: bytes
    span_id: bytes
    request_id: str
    tokens: int
    is_prefill: bool


def build_step_spans(
    tables: LedgerTables,
    row: int,
    origin: StepOrigin,
    links: Sequence[RequestLink] = (),
    *,
    links_omitted: int = 0,
    kept: str = "",
    has_root: bool = True,
) -> Iterator[Span]:
    """Yield the root of step `row` and its ranks; `kept` overrules why the ledger says it was kept.

    Without `has_root` (a node that is not the scheduler's) only the ranks.
    """
    trace_id = derive_step_trace_id(origin.engine_id, origin.run, int(tables.steps.step[row]))
    rank_rows = np.flatnonzero(tables.ranks.step_row == row)
    if has_root:
        attributes = _describe_step(tables, row, rank_rows)
        if kept:
            attributes[names.STEP_KEPT] = kept
        if links_omitted:
            attributes[names.STEP_LINKS_OMITTED] = links_omitted
        yield _build_root(tables.steps, row, origin, trace_id, attributes=attributes, links=links)
    root_id = derive_span_id(trace_id, names.SPAN_STEP)
    for rank_row in rank_rows.tolist():
        yield from build_rank_spans(tables, rank_row, origin, trace_id, root_id)


def _build_root(
    steps: StepTable,
    row: int,
    origin: StepOrigin,
    trace_id: bytes,
    *,
    attributes: Attributes,
    links: Sequence[RequestLink],
) -> Span:
    ready, scheduled = steps.output_ready_ns[row], steps.schedule_end_ns[row]
    return Span(
        trace_id=trace_id,
        span_id=derive_span_id(trace_id, names.SPAN_STEP),
        flags=SAMPLED | IS_REMOTE_KNOWN,
        name=names.SPAN_STEP,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=origin.to_realtime_ns(int(steps.schedule_start_ns[row])),
        end_time_unix_nano=origin.to_realtime_ns(int(scheduled if ready == UNKNOWN else ready)),
        attributes=to_key_values(attributes),
        links=[_to_link(link) for link in links],
    )


def _describe_step(
    tables: LedgerTables, row: int, rank_rows: "np.typing.NDArray[np.intp]"
) -> dict[str, AttributeValue]:
    steps = tables.steps
    attributes: dict[str, AttributeValue] = {names.STEP_ID: int(steps.step[row])}
    if kind := int(steps.kind[row]):
        attributes[names.STEP_KIND] = names.KINDS[kind - 1]
    attributes |= {name: int(getattr(steps, column)[row]) for name, column in _COUNTS}
    if graph_mode := int(steps.graph_mode[row]):
        attributes[names.STEP_GRAPH_MODE] = GRAPH_MODES[graph_mode]
    schedule_ns = int(steps.schedule_end_ns[row]) - int(steps.schedule_start_ns[row])
    attributes[names.STEP_SCHEDULE_S] = schedule_ns / _NS_PER_S
    for name, column in _DURATIONS:
        if (value := getattr(steps, column)[row]) != UNKNOWN:
            attributes[name] = int(value) / _NS_PER_S
    if names.STEP_EXECUTE_S not in attributes and len(rank_rows):
        # The scheduler did not see it: the step took as long as its longest rank.
        spent_ns = tables.ranks.end_ns[rank_rows] - tables.ranks.start_ns[rank_rows]
        attributes[names.STEP_EXECUTE_S] = int(spent_ns.max()) / _NS_PER_S
    iterations = tables.phases.iteration[tables.phases.step_row == row]
    if (known := iterations[iterations != UNKNOWN]).size:
        attributes[names.STEP_ITERATION] = int(known[0])
    device_ns = tables.ranks.device_ns[rank_rows]
    if (known := device_ns[device_ns != UNKNOWN]).size:
        attributes[names.STEP_DEVICE_S] = int(known.max()) / _NS_PER_S
    if kept := int(steps.kept[row]):
        attributes[names.STEP_KEPT] = names.KEPT[kept - 1]
    attributes[names.STEP_KEPT_PROBABILITY] = float(steps.kept_probability[row])
    attributes[names.MODE] = MODES[int(steps.mode[row])]
    return attributes


def _to_link(link: RequestLink) -> Span.Link:
    attributes: dict[str, AttributeValue] = {
        request_names.REQUEST_ID: link.request_id,
        request_names.REQUEST_TOKENS: link.tokens,
        request_names.REQUEST_PHASE: "prefill" if link.is_prefill else "decode",
    }
    return Span.Link(
        trace_id=link.trace_id,
        span_id=link.span_id,
        flags=SAMPLED | IS_REMOTE_KNOWN,
        attributes=to_key_values(attributes),
    )
