# Requests' lives -> sums by bin: how long the front end held them before and after the engine, how long
# they queued; and which are in flight. Bounded; remembers no text.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.diagnose.facts.bins import BinRing
from otel_llmprism.diagnose.facts.real_time import to_real_ns
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.native.ring_codes import RequestEvent

MAX_REQUESTS = 1 << 15
_MAX_WAIT_S = 3600.0


@dataclass(slots=True)
class _Life:
    arrival_ns: int = 0
    queued_ns: int = 0
    ended_ns: int = 0  # the engine's last token
    responded_ns: int = 0


class RequestWatch:
    """One engine's requests; the oldest go when there are too many."""

    def __init__(self) -> None:
        self._lives: dict[int, _Life] = {}
        self._waits: dict[str, list[tuple[int, float]]] = {}
        self.forgotten = 0

    def take(self, tables: LedgerTables, bins: BinRing, anchor: Anchor) -> None:
        """Take in arrivals, events and ends, in that order."""
        arrivals, events, ends = tables.arrivals, tables.events, tables.ends
        self._waits = {"front_in": [], "front_out": [], "queue": []}
        for handle, at in zip(
            arrivals.handle.tolist(), to_real_ns(arrivals.arrival_ns, anchor).tolist(), strict=True
        ):
            self._find(handle).arrival_ns = at
        times = to_real_ns(events.time_ns, anchor).tolist()
        for handle, at, event in zip(events.handle.tolist(), times, events.event.tolist(), strict=True):
            if at:
                self._note_event(handle, at, event)
        for handle, at in zip(ends.handle.tolist(), to_real_ns(ends.time_ns, anchor).tolist(), strict=True):
            life = self._find(handle)
            life.ended_ns = life.ended_ns or at
            self._close(handle, life)
        self._flush(bins)

    def count_in_flight(self, people: int, since_ns: int) -> int:
        """Return how many the engine owes an answer: of the last step's `people`, and those queued since.

        Bounded by what that step said, since the end of a request may be lost.
        """
        waiting = [life for life in self._lives.values() if life.queued_ns and not life.ended_ns]
        fresh = sum(life.queued_ns > since_ns for life in waiting)
        ended = sum(0 < since_ns <= life.ended_ns for life in self._lives.values())
        return min(len(waiting) - fresh, max(0, people - ended)) + fresh

    def clear(self) -> None:
        self._lives.clear()

    def _note_event(self, handle: int, at: int, event: int) -> None:
        if event == RequestEvent.QUEUED:
            life = self._find(handle)
            if not life.queued_ns:
                life.queued_ns = at
                self._note_wait("front_in", life.arrival_ns, at)
        elif event == RequestEvent.SCHEDULED:
            life = self._find(handle)
            self._note_wait("queue", life.queued_ns, at)
        elif event == RequestEvent.RESPONDED:
            life = self._find(handle)
            life.responded_ns = at
            self._close(handle, life)

    def _close(self, handle: int, life: _Life) -> None:
        if life.ended_ns and life.responded_ns:
            self._note_wait("front_out", life.ended_ns, life.responded_ns)
            del self._lives[handle]

    def _note_wait(self, name: str, from_ns: int, to_ns: int) -> None:
        if from_ns and to_ns and abs(to_ns - from_ns) < _MAX_WAIT_S * 1e9:
            self._waits[name].append((to_ns, max(0, to_ns - from_ns) / 1e9))

    def _flush(self, bins: BinRing) -> None:
        for name, waits in self._waits.items():
            if waits:
                times = np.array([at for at, _ in waits], dtype=np.int64)
                held = np.array([wait for _, wait in waits])
                bins.add_columns(times, {f"{name}/s": held, f"{name}/n": np.ones(len(waits))})

    def _find(self, handle: int) -> _Life:
        life = self._lives.get(handle)
        if life is None:
            life = self._lives[handle] = _Life()
            if len(self._lives) > MAX_REQUESTS:
                del self._lives[next(iter(self._lives))]
                self.forgotten += 1
        return life
