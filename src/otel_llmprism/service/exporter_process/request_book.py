# The requests in flight: arrivals, events and ends come in as ledger tables, ended requests go out once
# front end and core told of the end, or nobody will, and the steps they were in have had time to come.
# One thread; time comes in.
from collections.abc import Iterator
from dataclasses import dataclass, field

from otel_llmprism.exporters.request_spans import UNKNOWN_NS
from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.exporter_process.kept_steps import KeptSteps
from otel_llmprism.service.request_life import END_COLUMNS, EndNote, EventNote, RequestLife, read_arrival

# An ended request waits so long for its last steps: longer than a step waits for its ranks.
HOLD_NS = 1_500_000_000
# So many holds for the core's end after the front end's: as long as the step may take that it is in.
_HOLDS_FOR_CORE = 7
MAX_LIVE = 200_000  # beyond that arrivals are counted as lost: an engine that never ends requests
_MAX_EARLY = 10_000  # notes that came before their request's arrival, out of another process's ring

_Note = EventNote | EndNote


@dataclass(slots=True)
class LiveRequest:
    life: RequestLife
    kept_steps: KeptSteps = field(default_factory=KeptSteps)


class RequestBook:
    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._live: dict[int, LiveRequest] = {}
        self._ended: dict[int, None] = {}  # handles in order of their ends
        self._replaced: list[LiveRequest] = []  # ended ones whose id came again
        self._early: dict[int, list[_Note]] = {}

    def count_requests(self) -> tuple[int, int]:
        """Return how many requests were scheduled and not ended, and how many wait for their first step."""
        open_ones = [live.life for live in self._live.values() if not live.life.is_ended]
        running = sum(life.scheduled_ns != UNKNOWN_NS for life in open_ones)
        return running, len(open_ones) - running

    def note_tables(self, tables: LedgerTables) -> None:
        """Take in what happened to requests, in the order of time: an id may come again after its end."""
        arrivals = tables.arrivals
        texts = RequestTexts(arrivals, tables.text)
        handles = arrivals.handle.tolist()
        notes = _list_notes(tables)
        came = zip(arrivals.arrival_ns.tolist(), range(len(handles)), strict=True)
        arrived = ((time_ns, 0, handles[row], row) for time_ns, row in came)
        told = ((note.time_ns, 1, handle, row) for row, (handle, note) in enumerate(notes))
        for _, is_note, handle, row in sorted([*arrived, *told]):
            if is_note:
                self._note(handle, notes[row][1])
            else:
                self._admit(handle, read_arrival(arrivals, texts, row))

    def find(self, handle: int) -> LiveRequest | None:
        return self._live.get(handle)

    def is_sampled(self, handle: int) -> bool:
        request = self._live.get(handle)
        return request is not None and request.life.is_sampled

    def release(self, now_ns: int, hold_ns: int = HOLD_NS) -> Iterator[LiveRequest]:
        """Yield and forget the requests that ended a hold ago, in order of their ends.

        Those of which only the front end told wait longer while the core still has them.
        """
        replaced, self._replaced = self._replaced, []
        yield from replaced
        for handle in list(self._ended):
            request = self._live[handle]
            if _find_release_ns(request.life, hold_ns) <= now_ns:
                del self._ended[handle], self._live[handle]
                yield request
        for handle, early in list(self._early.items()):
            if early[-1].time_ns + _HOLDS_FOR_CORE * hold_ns <= now_ns:
                self._count("arrival_missing", len(self._early.pop(handle)))

    def release_all(self, now_ns: int) -> Iterator[LiveRequest]:
        """Yield everything: the engine is gone."""
        yield from self.release(now_ns, hold_ns=0)
        for handle in list(self._live):
            yield self._live.pop(handle)
        self._ended.clear()

    def _admit(self, handle: int, life: RequestLife) -> None:
        known = self._live.get(handle)
        if known is not None:
            if not known.life.is_ended:
                self._count("duplicate_arrival")
                return
            self._replaced.append(known)
            self._ended.pop(handle, None)
        elif len(self._live) >= MAX_LIVE:
            self._count("too_many_requests")
            return
        self._live[handle] = LiveRequest(life)
        for note in self._early.pop(handle, ()):
            self._note(handle, note)

    def _note(self, handle: int, note: _Note) -> None:
        request = self._live.get(handle)
        if request is None:
            if len(self._early) < _MAX_EARLY:
                self._early.setdefault(handle, []).append(note)
            else:
                self._count("arrival_missing")
            return
        if isinstance(note, EndNote):
            request.life.end = note
        else:
            request.life.note_event(note)
        if request.life.is_ended:
            self._ended[handle] = None

    def _count(self, cause: str, amount: int = 1) -> None:
        self._counters.add(LOST, amount, stage="requests", cause=cause)


def _list_notes(tables: LedgerTables) -> list[tuple[int, _Note]]:
    events, ends = tables.events, tables.ends
    columns = (events.event.tolist(), events.time_ns.tolist(), events.tokens.tolist())
    told: list[_Note] = [EventNote(*row) for row in zip(*columns, strict=True)]
    end_columns = (getattr(ends, name).tolist() for name in END_COLUMNS)
    told += [EndNote(*row) for row in zip(*end_columns, strict=True)]
    return list(zip([*events.handle.tolist(), *ends.handle.tolist()], told, strict=True))


def _find_release_ns(life: RequestLife, hold_ns: int) -> int:
    if life.end is None and life.is_queued:
        return life.responded_ns + _HOLDS_FOR_CORE * hold_ns
    return max(life.left_ns, life.ended_ns) + hold_ns
