# The requests of one engine and run: how long they queued, what their steps took, what is left unexplained,
# and which slow steps they were in. Ledger batches in; series and verdicts out. Times are the node's.
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from otel_llmprism.exporters.request_spans import UNKNOWN_NS
from otel_llmprism.model.chunks import cut_chunk_members
from otel_llmprism.model.steps import F64, U64, UNKNOWN
from otel_llmprism.native.ring_codes import RequestEvent
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerBatch
from otel_llmprism.service.exporter_process.request_book import LiveRequest, RequestBook
from otel_llmprism.service.request_life import RequestLife
from otel_llmprism.service.sentinel.request_sums import sum_request_amounts

_NS_PER_S = 1e9
_HOLD_NS = 700_000_000  # for the last steps of an ended request
_MAX_SUMS = 200_000
MAX_SLOW_LINKS = 8  # slow steps that a request names

CYCLE, GAP, SLOW = range(3)


@dataclass(slots=True)
class Spent:
    """What the steps of a request summed up to."""

    cycle_ns: int = 0
    gap_ns: int = 0
    slow_steps: int = 0
    slow_ids: list[int] = field(default_factory=list)
    is_known: bool = False  # its arrival was told


@dataclass(frozen=True, slots=True)
class EndedOne:
    life: RequestLife
    spent: Spent

    @property
    def queue_s(self) -> float:
        return (self.life.scheduled_ns - self.life.arrival_ns) / _NS_PER_S

    @property
    def total_s(self) -> float:
        return (self.life.ended_ns - self.life.arrival_ns) / _NS_PER_S

    @property
    def unexplained_s(self) -> float | None:
        """End to end - queue - sum of its cycles; None where a part is not known."""
        if self.life.scheduled_ns == UNKNOWN_NS or not self.life.is_ended or not self.spent.cycle_ns:
            return None
        return max(0.0, self.total_s - self.queue_s - self.spent.cycle_ns / _NS_PER_S)


class RequestWatch:
    def __init__(self, counters: Counters) -> None:
        self._book = RequestBook(counters)
        self._spent: dict[int, Spent] = {}
        self._handles: dict[tuple[str, int], int] = {}  # by id and arrival

    def find(self, handle: int) -> LiveRequest | None:
        return self._book.find(handle)

    def take(self, batch: LedgerBatch, slow_rows: npt.NDArray[np.intp]) -> None:
        """Take in who arrived, ended and was in which step; `slow_rows` are the flagged ones."""
        self._book.note_tables(batch.tables)
        steps = batch.tables.steps
        amounts = np.zeros((len(steps), 3), dtype=np.int64)
        for column, own in ((CYCLE, steps.cycle_ns), (GAP, steps.gap_ns)):
            amounts[:, column] = np.where(own == UNKNOWN, 0, own).astype(np.int64)
        amounts[slow_rows, SLOW] = 1
        for chunk in range(len(batch.chunks)):
            members = cut_chunk_members(batch.tables, batch.chunks, chunk)
            first = members.first_step_row
            own_amounts = amounts[first : first + len(members.lane_of_step)]
            self._add(*sum_request_amounts(members, own_amounts))

    def note_slow_step(self, handles: Sequence[int], step: int) -> None:
        """Remember for each request that it was in this slow step, which is kept."""
        for handle in handles:
            spent = self._spent.get(handle)
            if spent is not None and len(spent.slow_ids) < MAX_SLOW_LINKS:
                spent.slow_ids.append(step)

    def list_queued(self, batch: LedgerBatch) -> tuple[U64, F64]:
        """Return when requests were first scheduled, and the seconds they had waited."""
        events = batch.tables.events
        rows = np.flatnonzero(events.event == RequestEvent.SCHEDULED)
        times, waits = [], []
        for handle, time_ns in zip(events.handle[rows].tolist(), events.time_ns[rows].tolist(), strict=True):
            live = self._book.find(handle)
            if live is not None and time_ns >= live.life.arrival_ns:
                times.append(time_ns)
                waits.append((time_ns - live.life.arrival_ns) / _NS_PER_S)
        return np.array(times, dtype=np.uint64), np.array(waits, dtype=np.float64)

    def release(self, now_ns: int) -> list[EndedOne]:
        """Return and forget the requests whose story is complete."""
        ended = []
        for live in self._book.release(now_ns, _HOLD_NS):
            handle = self._handles.pop(_name_life(live.life), 0)
            ended.append(EndedOne(live.life, self._spent.pop(handle, Spent())))
        return ended

    def _add(self, handles: U64, sums: npt.NDArray[np.int64]) -> None:
        for handle, (cycle_ns, gap_ns, slow) in zip(handles.tolist(), sums.tolist(), strict=True):
            spent = self._spent.get(handle)
            if spent is None:
                if len(self._spent) >= _MAX_SUMS:
                    self._spent.pop(next(iter(self._spent)))
                spent = self._spent[handle] = Spent()
            if not spent.is_known and (live := self._book.find(handle)) is not None:
                spent.is_known = True
                self._handles[_name_life(live.life)] = handle
            spent.cycle_ns += cycle_ns
            spent.gap_ns += gap_ns
            spent.slow_steps += slow


def _name_life(life: RequestLife) -> tuple[str, int]:
    return life.request_id, life.arrival_ns
