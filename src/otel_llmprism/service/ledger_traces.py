# A step or a request of the past, out of the ledger -> the spans that it would have had, under the same
# derived ids. Two passes over a run's chunks: one finds what is asked for, one finds what it refers to.
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.request_spans import RequestTexts as SharedTexts
from otel_llmprism.exporters.request_spans import build_request_spans
from otel_llmprism.exporters.step_spans import RequestLink, StepOrigin, build_step_spans
from otel_llmprism.model.chunks import cut_chunk_members
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.member_sums import list_steps_of
from otel_llmprism.model.members import RunningState, StepMembers
from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.model.steps import UNKNOWN
from otel_llmprism.native.ring_records import derive_request_handle
from otel_llmprism.receivers.ledger import LedgerBatch, LedgerSource
from otel_llmprism.service.ledger_history import LedgerHistory, StepBounds
from otel_llmprism.service.request_life import END_COLUMNS, EndNote, EventNote, RequestLife, read_arrival

MAX_STEP_LINKS = 16  # of a request: first, slowest, latest


@dataclass(slots=True)
class Past:
    """What the ledger says about one request, as it is found."""

    life: RequestLife
    origin: StepOrigin
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
    past = _follow(history, source, handle)
    if past is None:
        return []
    linked = choose_steps(past.steps)
    past.life.steps = len(past.steps)
    spans = list(build_request_spans(past.life.to_ended(), past.origin, texts, linked))
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
) -> dict[int, RequestLife]:
    """Return the arrivals of these requests, as far as the ledger still has them."""
    wanted = np.array(handles, dtype=np.uint64)
    found: dict[int, RequestLife] = {}
    for batch in _read_run(history, source):
        arrivals = batch.tables.arrivals
        rows = np.flatnonzero(np.isin(arrivals.handle, wanted))
        if len(rows):
            texts = RequestTexts(arrivals, batch.tables.text)
            found |= {int(arrivals.handle[row]): read_arrival(arrivals, texts, row) for row in rows.tolist()}
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


def _link(members: StepMembers, arrivals: dict[int, RequestLife]) -> list[RequestLink]:
    links = []
    for row, handle in enumerate(members.handle.tolist()):
        arrival = arrivals.get(handle)
        if arrival is not None and arrival.is_sampled:
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


def _follow(history: LedgerHistory, source: LedgerSource, handle: int) -> Past | None:
    past: Past | None = None
    notes: list[EventNote | EndNote] = []  # also those of another process that lie before the arrival
    steps: list[tuple[int, int, int]] = []  # schedule start, id, cycle
    for batch in _read_run(history, source):
        arrivals = batch.tables.arrivals
        for row in np.flatnonzero(arrivals.handle == handle).tolist():
            life = read_arrival(arrivals, RequestTexts(arrivals, batch.tables.text), row)
            past = Past(life, to_origin(batch, 0))  # an id that came again: its later request
        notes += _list_notes(batch, handle)
        steps += _list_steps(batch, handle)
    if past is None:
        return None
    since_ns = past.life.arrival_ns
    past.steps = [(step, cycle) for start_ns, step, cycle in steps if start_ns >= since_ns]
    for note in sorted(notes, key=lambda note: note.time_ns):
        if note.time_ns < since_ns:
            continue
        if isinstance(note, EndNote):
            past.life.end = note
        else:
            past.life.note_event(note)
    return past


def _list_notes(batch: LedgerBatch, handle: int) -> Iterator[EventNote | EndNote]:
    events, ends = batch.tables.events, batch.tables.ends
    for row in np.flatnonzero(events.handle == handle).tolist():
        yield EventNote(int(events.event[row]), int(events.time_ns[row]), int(events.tokens[row]))
    for row in np.flatnonzero(ends.handle == handle).tolist():
        yield EndNote(*(int(getattr(ends, name)[row]) for name in END_COLUMNS))


def _list_steps(batch: LedgerBatch, handle: int) -> Iterator[tuple[int, int, int]]:
    steps = batch.tables.steps
    cycles = np.where(steps.cycle_ns == UNKNOWN, 0, steps.cycle_ns)
    for chunk in range(len(batch.chunks)):
        own = cut_chunk_members(batch.tables, batch.chunks, chunk)
        rows = own.first_step_row + list_steps_of(handle, own.lane_of_step, own.members, own.running)
        for row in rows.tolist():
            yield int(steps.schedule_start_ns[row]), int(steps.step[row]), int(cycles[row])
