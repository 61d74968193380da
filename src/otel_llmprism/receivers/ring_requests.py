# What happened to requests, waiting between a drain and a chunk; handed on in the order it came.
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from otel_llmprism.model.steps import (
    U8,
    U64,
    UNKNOWN,
    ArrivalTable,
    EndTable,
    EventTable,
    PauseTable,
    Table,
)
from otel_llmprism.native.ring_records import Kind, RequestEvent
from otel_llmprism.receivers.ring_slots import Rows, SlotGroups, SlotSplitter

# What one chunk takes; with the longest ids still well below its 1 MiB.
MAX_ARRIVALS, MAX_EVENTS, MAX_ENDS, MAX_PAUSES = 800, 3000, 1500, 500
MAX_KNOWN_ARRIVALS = 1 << 16  # requests in flight whose arrival is remembered, for gaps

AnyTable = TypeVar("AnyTable", bound=Table)


@dataclass(frozen=True, slots=True)
class ReadyRequests:
    arrivals: ArrivalTable
    text: U8
    events: EventTable
    ends: EndTable
    pauses: PauseTable

    @property
    def row_count(self) -> int:
        return sum(map(len, (self.arrivals, self.events, self.ends, self.pauses)))


class PendingRequests:
    def __init__(self) -> None:
        nothing = SlotSplitter().split(b"", 0)
        self._arrivals = nothing.arrivals
        self._text = nothing.text
        self._events: Rows = nothing.rows[Kind.REQUEST_EVENT]
        self._ends: Rows = nothing.rows[Kind.REQUEST_ENDED]
        self._pauses: Rows = nothing.rows[Kind.PAUSE]
        self._known_ns: dict[int, int] = {}

    def add(self, groups: SlotGroups) -> None:
        if len(groups.arrivals):
            self._arrivals = _concatenate(self._arrivals, groups.arrivals)
            self._text = np.concatenate([self._text, groups.text])
            self._remember(groups.arrivals.handle, groups.arrivals.arrival_ns)
        events, ends = groups.rows[Kind.REQUEST_EVENT], groups.rows[Kind.REQUEST_ENDED]
        queued = events[events["event"] == RequestEvent.QUEUED]
        self._remember(queued["handle"], queued["time_ns"])
        self._events = np.concatenate([self._events, events])
        self._ends = np.concatenate([self._ends, ends])
        self._pauses = np.concatenate([self._pauses, groups.rows[Kind.PAUSE]])

    def take(self) -> ReadyRequests:
        """Cut off at most a chunk's worth."""
        arrivals, self._arrivals = _cut(self._arrivals, MAX_ARRIVALS)
        text_bytes = int(arrivals.request_id_bytes.sum(dtype=np.int64))
        text_bytes += int(arrivals.external_rest_bytes.sum(dtype=np.int64))
        text, self._text = self._text[:text_bytes], self._text[text_bytes:]
        events, self._events = self._events[:MAX_EVENTS], self._events[MAX_EVENTS:]
        ends, self._ends = self._ends[:MAX_ENDS], self._ends[MAX_ENDS:]
        pauses, self._pauses = self._pauses[:MAX_PAUSES], self._pauses[MAX_PAUSES:]
        for handle in ends["handle"].tolist():
            self._known_ns.pop(handle, None)
        return ReadyRequests(
            arrivals,
            text,
            _to_table(EventTable, events),
            _to_table(EndTable, ends),
            _to_table(PauseTable, pauses),
        )

    def find_arrivals(self, handles: U64) -> U64:
        """Return when these requests came to the scheduler, UNKNOWN where nobody said so."""
        known = (self._known_ns.get(handle, int(UNKNOWN)) for handle in handles.tolist())
        return np.fromiter(known, np.uint64, len(handles))

    def _remember(self, handles: U64, times_ns: U64) -> None:
        self._known_ns.update(zip(handles.tolist(), times_ns.tolist(), strict=True))
        while len(self._known_ns) > MAX_KNOWN_ARRIVALS:
            del self._known_ns[next(iter(self._known_ns))]


def _to_table(table: type[AnyTable], rows: Rows) -> AnyTable:
    return table(*(rows[field.name].copy() for field in fields(table)))


def _cut(table: AnyTable, count: int) -> tuple[AnyTable, AnyTable]:
    columns = [getattr(table, field.name) for field in fields(table)]
    first, rest = (column[:count] for column in columns), (column[count:] for column in columns)
    return type(table)(*first), type(table)(*rest)


def _concatenate(first: AnyTable, second: AnyTable) -> AnyTable:
    names = [field.name for field in fields(first)]
    return type(first)(*(np.concatenate([getattr(first, name), getattr(second, name)]) for name in names))
