# Slows the part of the mini engine that asks, as the schedule says, and books the time that it added: whoever
# judges detection then knows what a step would have taken. One per process; does nothing without a schedule.
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from otel_llmprism.testing.mini_engine.fault_schedule import Entry, Manner, Place

_LOOK_EVERY_NS = 100_000_000
_WITHIN_STEP = (Place.OPERATOR, Place.RANK)


@dataclass(slots=True)
class FaultPlan:
    """What every process of one run is told; `log` is a file a process, its rank as suffix.

    Where the origin is not known yet, `origin_file` will tell it; until then nothing is on.
    """

    entries: tuple[Entry, ...] = ()
    origin_ns: int = 0  # CLOCK_MONOTONIC
    log: Path | None = None
    origin_file: Path | None = None
    _looked_ns: int = 0

    def find_entry(self, place: Place, now_ns: int, rank: int = 0) -> Entry | None:
        """Return what is on now at a place."""
        if self.origin_file is not None and not self._look_for_origin(now_ns):
            return None
        since_s = (now_ns - self.origin_ns) / 1e9
        for entry in self.entries:
            if entry.place is place and entry.begin_s <= since_s < entry.end_s:
                if place is Place.RANK and entry.rank != rank:
                    continue
                return entry
        return None

    def _look_for_origin(self, now_ns: int) -> bool:
        if self.origin_file is not None and now_ns - self._looked_ns > _LOOK_EVERY_NS:
            self._looked_ns = now_ns
            if self.origin_file.exists():
                self.origin_ns = int(self.origin_file.read_text(encoding="utf-8"))
                self.origin_file = None
        return self.origin_file is None


class FaultInjector:
    """Owned by the thread that runs the steps."""

    def __init__(self, plan: FaultPlan, rank: int = 0) -> None:
        self.plan = plan
        self._rank = rank
        self._file: TextIO | None = None
        if plan.entries and plan.log is not None:
            self._file = plan.log.with_name(f"{plan.log.name}.{rank}").open("w", encoding="utf-8")
        self._usual_ns = 0  # what the last step took without us
        self._began_ns = self._mark_ns = 0
        self._operator: Entry | None = None
        self._added: dict[str, int] = {}

    def begin_step(self, now_ns: int) -> None:
        """Tell that a step begins; its own time is reckoned from here."""
        self._began_ns = self._mark_ns = now_ns
        self._added.clear()
        self._operator = None
        for place in _WITHIN_STEP if self.plan.entries else ():
            self._operator = self._operator or self.plan.find_entry(place, now_ns, self._rank)

    def delay_schedule(self) -> None:
        """Make the scheduler slow by a share of what the last step took."""
        entry = self.plan.find_entry(Place.SCHEDULER, self._began_ns) if self.plan.entries else None
        if entry is not None:
            self._mark_ns += self._delay(entry, (entry.intensity - 1) * self._usual_ns)

    def begin_operator(self) -> None:
        """Tell that the rank computes from here."""
        if self._operator is not None:
            self._mark_ns = time.monotonic_ns()

    def delay_operator(self) -> None:
        """Make what was computed since begin_operator, or since the step's begin, slow."""
        if self._operator is not None:
            own_ns = time.monotonic_ns() - self._mark_ns
            self._delay(self._operator, (self._operator.intensity - 1) * own_ns)

    def end_step(self, step_id: int, now_ns: int) -> None:
        """Book what was added to the step."""
        self._usual_ns = max(0, now_ns - self._began_ns - sum(self._added.values()))
        for fault, added_ns in self._added.items():
            self._write({"step": step_id, "fault": fault, "rank": self._rank, "added_ns": added_ns})

    def note_request(self, request_id: str, entry: Entry, added_ns: int) -> None:
        """Book what was added to a request outside its steps."""
        self._write({"request": request_id, "fault": entry.id, "added_ns": added_ns})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _delay(self, entry: Entry, wanted_ns: float) -> int:
        began_ns = time.monotonic_ns()
        if entry.manner is Manner.SLEEP:
            time.sleep(wanted_ns / 1e9)
        else:
            while time.monotonic_ns() - began_ns < wanted_ns:
                pass
        spent_ns = time.monotonic_ns() - began_ns
        self._added[entry.id] = self._added.get(entry.id, 0) + spent_ns
        return spent_ns

    def _write(self, line: dict[str, object]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
