# A step or a request of the past, out of the ledger -> the spans that it would have had, under the same
# derived ids. Two passes over a run's chunks: one finds what is asked for, one finds what it refers to.
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.request_spans import (
    UNKNOWN_NS,
    EndedRequest,
    build_request_spans,
)
from otel_llmprism.exporters.request_spans import RequestTexts as SharedTexts
from otel_llmprism.exporters.step_spans import RequestLink, StepOrigin, build_step_spans
from otel_llmprism.model.chunks import cut_chunk_members
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.member_sums import list_steps_of
from otel_llmprism.model.members import RunningState, StepMembers
from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.model.steps import UNKNOWN
from otel_llmprism.native.ring_records import RequestEvent, derive_request_handle
from otel_llmprism.receivers.ledger import LedgerBatch, LedgerSource
from otel_llmprism.service.ledger_history import LedgerHistory, StepBounds

MAX_STEP_LINKS = 16  # of a request: first, slowest, latest
SAMPLED, REMOTE_PARENT = 1, 2  # ArrivalTable.flags


@dataclass(frozen=True, slots=True)
class Arrival:
    request_id: str
    external_id: str
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    flags: int
    arrival_ns: int


@dataclass(slots=True)
class Life:
    """What the ledger says about one request, as it is found."""

    arrival: Arrival | None = None
    origin: StepOrigin | None = None
    scheduled_ns: int = UNKNOWN_NS
    first_token_ns: int = UNKNOWN_NS
    ended_ns: int = UNKNOWN_NS
    totals: tuple[int, ...] = (0, 0, 0, 0, 0, 0, 1)  # as EndTable has them from prompt_tokens on
    steps: list[tuple[int, int]] = field(default_factory=list)  # id, cycle


def build_past_step(history: LedgerHistory, source: LedgerSource, step: int) -> list[Span]:
    """Return root, ranks and links of one step; nothing when the ledger does not have it."""
    bounds = StepBounds(source.engine_id, source.run, step, step)
    for batch in history.read_batches(bounds):
        for row in bounds.select_rows(batch).tolist():
            members = list_members_at(batch, row)
            arrivals = find_arrivals(history, source, members.handle.tolist(), step)
            return list(build_step_spans(batch.tables, row, to_origin(batch, row), _link(members, arrivals)))
    return []


def build_past_request(
    history: LedgerHistory, source: LedgerSource, request: str, texts: SharedTexts
) -> list[Span]:
    """Return a request's span with its phases, and the steps that its decode links to.

    `request` is its id or the caller's own (external) id.
    """
    handle = _find_handle(history, source, request)
    life = _follow(history, source, handle)
    if life.arrival is None or life.origin is None:
        return []
    linked = choose_steps(life.steps)
    spans = list(build_request_spans(_to_ended(life, life.arrival), life.origin, texts, linked))
    for step in linked:
        spans += build_past_step(history, source, step)
    return spans


def choose_steps(steps: Sequence[tuple[int, int]]) -> list[int]:
    """Return at most MAX_STEP_LINKS step ids: the first, the slowest, then the latest of (id, cycle)."""
    if not steps:
        return []
    ordered = [min(steps)[0], max(steps, key=lambda step: step[1])[0]]
    ordered += [step for step, _ in sorted(steps, reverse=True)]
    return sorted([*dict.fromkeys(ordered)][:MAX_STEP_LINKS])


def list_members_at(batch: LedgerBatch, row: int) -> StepMembers:
    """Return who was in the step at `row`, from its own chunk's running set on."""
    chunk = int(np.searchsorted(batch.chunks.first_step_row, row, side="right")) - 1
    own = cut_chunk_members(batch.tables, batch.chunks, chunk)
    own_row = row - own.first_step_row
    begin, end = np.searchsorted(own.members.step_row, [own_row, own_row + 1]).tolist()
    state = RunningState(own.running)
    state.apply(own.members, slice(0, end))
    return state.list_members(int(own.lane_of_step[own_row]), own.members, slice(begin, end))


def find_arrivals(
    history: LedgerHistory, source: LedgerSource, handles: Sequence[int], until_step: int
) -> dict[int, Arrival]:
    """Return the arrivals of these requests, as far as the ledger still has them."""
    wanted = np.array(handles, dtype=np.uint64)
    found: dict[int, Arrival] = {}
    for batch in _read_run(history, source):
        arrivals = batch.tables.arrivals
        rows = np.flatnonzero(np.isin(arrivals.handle, wanted))
        if len(rows):
            texts = RequestTexts(arrivals, batch.tables.text)
            found |= {int(arrivals.handle[row]): _read_arrival(batch, texts, row) for row in rows.tolist()}
        steps = batch.tables.steps.step
        if len(steps) and int(steps[0]) > until_step:
            break
    return found


def to_origin(batch: LedgerBatch, step_row: int) -> StepOrigin:
    chunks = batch.chunks
    chunk = max(0, int(np.searchsorted(chunks.first_step_row, step_row, side="right")) - 1)
    anchor = Anchor(int(chunks.anchor_monotonic_ns[chunk]), int(chunks.anchor_realtime_ns[chunk]))
    return StepOrigin(batch.source.engine_id, bytes.fromhex(batch.source.run), anchor)


def _read_run(history: LedgerHistory, source: LedgerSource) -> Iterator[LedgerBatch]:
    bounds = StepBounds(source.engine_id, source.run)
    return history.read_batches(bounds, lambda _frame: True)


def _read_arrival(batch: LedgerBatch, texts: RequestTexts, row: int) -> Arrival:
    arrivals = batch.tables.arrivals
    return Arrival(
        texts.read_request_id(row),
        texts.read_external_id(row),
        texts.read_trace_id(row),
        texts.read_span_id(row),
        texts.read_parent_span_id(row),
        int(arrivals.flags[row]),
        int(arrivals.arrival_ns[row]),
    )


def _link(members: StepMembers, arrivals: dict[int, Arrival]) -> list[RequestLink]:
    links = []
    for row, handle in enumerate(members.handle.tolist()):
        arrival = arrivals.get(handle)
        if arrival is not None and arrival.flags & SAMPLED:
            tokens, is_prefill = int(members.tokens[row]), bool(members.is_prefill[row])
            links.append(
                RequestLink(arrival.trace_id, arrival.span_id, arrival.request_id, tokens, is_prefill)
            )
    return links


def _find_handle(history: LedgerHistory, source: LedgerSource, request: str) -> int:
    """Return the handle of a request id; if no such request arrived, of the one with this external id."""
    handle = derive_request_handle(request)
    external = 0
    for batch in _read_run(history, source):
        arrivals = batch.tables.arrivals
        if np.any(arrivals.handle == handle):
            return handle
        texts = RequestTexts(arrivals, batch.tables.text)
        rows = (row for row in range(len(arrivals)) if texts.read_external_id(row) == request)
        external = next((int(arrivals.handle[row]) for row in rows), external)
    return external or handle


def _follow(history: LedgerHistory, source: LedgerSource, handle: int) -> Life:
    life = Life()
    for batch in _read_run(history, source):
        tables = batch.tables
        for row in np.flatnonzero(tables.arrivals.handle == handle).tolist():
            life.arrival = _read_arrival(batch, RequestTexts(tables.arrivals, tables.text), row)
            life.origin = to_origin(batch, 0)
        _note_events(life, batch, handle)
        for row in np.flatnonzero(tables.ends.handle == handle).tolist():
            ends = tables.ends
            life.ended_ns = int(ends.time_ns[row])
            columns = (
                *(ends.prompt_tokens, ends.output_tokens, ends.cached_tokens, ends.steps, ends.preemptions),
                *(ends.finish, ends.error),
            )
            life.totals = tuple(int(column[row]) for column in columns)
        _note_steps(life, batch, handle)
    return life


def _note_events(life: Life, batch: LedgerBatch, handle: int) -> None:
    events = batch.tables.events
    for row in np.flatnonzero(events.handle == handle).tolist():
        time_ns = int(events.time_ns[row])
        if events.event[row] == RequestEvent.SCHEDULED and life.scheduled_ns == UNKNOWN_NS:
            life.scheduled_ns = time_ns
        elif events.event[row] == RequestEvent.FIRST_TOKEN and life.first_token_ns == UNKNOWN_NS:
            life.first_token_ns = time_ns


def _note_steps(life: Life, batch: LedgerBatch, handle: int) -> None:
    steps = batch.tables.steps
    cycles = np.where(steps.cycle_ns == UNKNOWN, 0, steps.cycle_ns)
    for chunk in range(len(batch.chunks)):
        own = cut_chunk_members(batch.tables, batch.chunks, chunk)
        rows = own.first_step_row + list_steps_of(handle, own.lane_of_step, own.members, own.running)
        life.steps += [(int(steps.step[row]), int(cycles[row])) for row in rows.tolist()]


def _to_ended(life: Life, arrival: Arrival) -> EndedRequest:
    prompt, output, cached, steps, preemptions, finish, error = life.totals
    last_seen_ns = max(arrival.arrival_ns, life.scheduled_ns, life.first_token_ns)
    return EndedRequest(
        request_id=arrival.request_id,
        external_id=arrival.external_id,
        trace_id=arrival.trace_id,
        span_id=arrival.span_id,
        parent_span_id=arrival.parent_span_id,
        has_remote_parent=bool(arrival.flags & REMOTE_PARENT),
        arrival_ns=arrival.arrival_ns,
        scheduled_ns=life.scheduled_ns,
        first_token_ns=life.first_token_ns,
        ended_ns=last_seen_ns if life.ended_ns == UNKNOWN_NS else life.ended_ns,
        prompt_tokens=prompt,
        output_tokens=output,
        cached_tokens=cached,
        steps=steps or len(life.steps),
        preemptions=preemptions,
        finish=finish,
        is_error=bool(error),
    )
