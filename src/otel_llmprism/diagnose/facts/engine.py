# All that is known of one engine and run: its sums, its hosts, its requests, its alarms. Values go in from
# the stage; causes and incidents read.
from dataclasses import dataclass, field

import numpy as np

from otel_llmprism.diagnose.facts.bins import BIN_NS, BinRing
from otel_llmprism.diagnose.facts.chart_notes import ChartNotes
from otel_llmprism.diagnose.facts.host_rates import RateReader
from otel_llmprism.diagnose.facts.host_ring import HostRing
from otel_llmprism.diagnose.facts.ranks import add_collectives, add_phases, add_ranks
from otel_llmprism.diagnose.facts.real_time import to_real, to_real_ns
from otel_llmprism.diagnose.facts.reference import Normal, Span
from otel_llmprism.diagnose.facts.requests import RequestWatch
from otel_llmprism.diagnose.facts.steps import SlowStep, StepNotes, add_steps
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.findings import StepRef
from otel_llmprism.model.hosts import HostTables
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.model.work import ScoredTable
from otel_llmprism.native.ring_codes import StepKind

MAX_NODES = 64
MAX_SPANS = 32
MAX_SLOW = 64
MAX_STEP_TIMES = 4096
MAX_LOST = 100_000  # steps at once; more is another run


@dataclass(slots=True)
class HostFacts:
    ring: HostRing = field(default_factory=HostRing)
    rates: RateReader = field(default_factory=RateReader)


@dataclass(slots=True)
class EngineFacts:
    engine_id: str
    run: str
    node: str  # of the scheduler
    bins: BinRing = field(default_factory=BinRing)
    hosts: dict[str, HostFacts] = field(default_factory=dict)
    requests: RequestWatch = field(default_factory=RequestWatch)
    charts: ChartNotes = field(default_factory=ChartNotes)
    unhealthy: list[Span] = field(default_factory=list)
    kept_normals: dict[str, Normal] = field(default_factory=dict)
    slow: list[SlowStep] = field(default_factory=list)  # of the last seconds
    steps_at: list[tuple[int, int]] = field(default_factory=list)  # (real time, step), about one a bin
    heard_ns: int = 0
    last_output_ns: int = 0
    last_schedule_ns: int = 0
    last_people: int = 0
    last_expected_s: float = float("nan")
    last_step: int = -1
    is_training: bool = False
    seen: int = 0
    lost: int = 0

    def take_steps(self, node: str, tables: LedgerTables, scored: ScoredTable, anchor: Anchor) -> None:
        """Add one batch of the ledger."""
        times = to_real_ns(tables.steps.output_ready_ns, anchor)
        if len(tables.steps):
            self.node = node
            notes = add_steps(self.bins, tables, scored, anchor)
            self._note_last(tables, notes, anchor)
            self._note_steps(tables.steps.step.tolist(), times.tolist())
            if notes.slowest is not None:
                self.slow = [*self.slow[-MAX_SLOW:], notes.slowest]
        add_ranks(self.bins, tables, times)
        add_phases(self.bins, tables, times)
        add_collectives(self.bins, tables.collectives, times)
        self.requests.take(tables, self.bins, anchor)
        self.heard_ns = max(self.heard_ns, int(times.max(initial=0)))
        # A pause is silence that was meant.
        resumed_ns = int(to_real_ns(tables.pauses.end_ns, anchor).max(initial=0))
        self.last_output_ns = max(self.last_output_ns, resumed_ns) if self.last_output_ns else 0
        for column in (tables.events.time_ns, tables.ends.time_ns):
            self.heard_ns = max(self.heard_ns, int(to_real_ns(column, anchor).max(initial=0)))

    def take_host(self, node: str, tables: HostTables, anchor: Anchor) -> None:
        """Add one batch of a node's samples."""
        if node not in self.hosts and len(self.hosts) >= MAX_NODES:
            self.bins.refused += 1
            return
        host = self.hosts.setdefault(node, HostFacts())
        for begin, end, values in host.rates.read(tables, anchor):
            host.ring.add(begin, end, values)
        if len(tables.samples):
            self.heard_ns = max(self.heard_ns, to_real(int(tables.samples.time_ns.max()), anchor))

    def note_unhealthy(self, begin_ns: int, end_ns: int) -> None:
        """Keep this time out of every reference."""
        if self.unhealthy and begin_ns <= self.unhealthy[-1][1]:
            first, last = self.unhealthy.pop()
            begin_ns, end_ns = min(first, begin_ns), max(last, end_ns)
        self.unhealthy = [*self.unhealthy[-MAX_SPANS:], (begin_ns, end_ns)]

    @property
    def newest_ns(self) -> int:
        """End of the newest bin that holds something; 0 before."""
        return (self.bins.newest + 1) * BIN_NS if self.bins.newest >= 0 else 0

    @property
    def loss_share(self) -> float:
        return self.lost / (self.seen + self.lost) if self.seen + self.lost else 0.0

    def list_steps(self, from_ns: int, to_ns: int, count: int) -> tuple[int, ...]:
        """Return some of the steps in this time, the newest `count` known."""
        return tuple(step for at, step in self.steps_at if from_ns <= at <= to_ns)[-count:]

    def find_step(self, time_ns: int, why: str) -> StepRef | None:
        """Return the first known step at or after this time."""
        step = next((step for at, step in self.steps_at if at >= time_ns), None)
        return None if step is None else StepRef(self.run, step, why)

    def _note_last(self, tables: LedgerTables, notes: StepNotes, anchor: Anchor) -> None:
        steps = tables.steps
        before = self.last_step if self.last_step >= 0 else notes.first_step - 1
        self.lost += min(MAX_LOST, max(0, notes.last_step - before - notes.seen))
        self.last_step = max(self.last_step, notes.last_step)
        self.seen += notes.seen
        self.lost += notes.broken
        if notes.last_output_ns > self.last_output_ns:
            self.last_output_ns = notes.last_output_ns
            self.last_people = int(steps.requests[-1]) + int(steps.waiting[-1])
            self.last_schedule_ns = int(to_real_ns(steps.schedule_start_ns[-1:], anchor)[0])
            self.is_training = bool(np.any(steps.kind == StepKind.TRAIN))
        if notes.expected_s == notes.expected_s:
            self.last_expected_s = notes.expected_s

    def _note_steps(self, steps: list[int], times: list[int]) -> None:
        last = self.steps_at[-1][0] if self.steps_at else 0
        for step, at in zip(steps, times, strict=True):
            if at and not last <= at < last + BIN_NS // 4:
                self.steps_at.append((at, step))
                last = at
        del self.steps_at[:-MAX_STEP_TIMES]
