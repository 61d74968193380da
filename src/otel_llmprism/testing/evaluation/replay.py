# A recording through the sentinel's core in data time: bodies in the order they were written, findings and
# scored steps out. The warm-up is learned once; each episode is then judged alone, by a copy of what was
# learned.
import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Protocol

import numpy as np

from otel_llmprism.model.findings import Finding
from otel_llmprism.model.steps import F64, U8, U64
from otel_llmprism.model.work import ScoredTable
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerReader
from otel_llmprism.semconv.ledger import EVENT_LEDGER
from otel_llmprism.service.sentinel.core import SentinelCore
from otel_llmprism.service.sentinel.news import News
from otel_llmprism.testing.evaluation.recording import TimedBody

SHIPPED_EVERY_NS = 500_000_000
_SHORT_PAUSE_NS = 2 * SHIPPED_EVERY_NS
# What is longer was cut out of the recording, or lies between two runs: nobody waited for it.
_LONG_PAUSE_NS = 60_000_000_000
_CLOSING_NS = 4_000_000_000  # what is late is waited for


@dataclass(frozen=True, slots=True)
class StepScores:
    """Scored steps of a replay, in order; times are CLOCK_MONOTONIC."""

    step: U64
    ready_ns: U64
    cycle_ns: U64
    expected_ns: F64
    residual: F64
    is_flagged: U8


@dataclass(slots=True)
class Verdict:
    """What the sentinel said of one stretch of data."""

    findings: list[Finding] = field(default_factory=list)  # every state, in order
    tables: list[ScoredTable] = field(default_factory=list)

    def join_steps(self) -> StepScores:
        """Return the steps of all batches."""
        return StepScores(
            *(
                np.concatenate([getattr(table, name) for table in self.tables] or [np.zeros(0, dtype)])
                for name, dtype in (
                    ("step", np.uint64),
                    ("time_ns", np.uint64),
                    ("cycle_ns", np.uint64),
                    ("expected_ns", np.float64),
                    ("residual", np.float64),
                    ("is_flagged", np.uint8),
                )
            )
        )


class Freezable(Protocol):
    """A trainer that can be told to train no more."""

    is_frozen: bool


@dataclass(slots=True)
class ReplayState:
    """The core with its reader, and how far time has come; copied as one."""

    core: SentinelCore
    reader: LedgerReader
    counters: Counters
    trainer: Freezable
    now_ns: int = 0  # real time of the data

    def copy(self) -> "ReplayState":
        # Counters hold a lock, and nothing is decided by them.
        return copy.deepcopy(self, {id(self.counters): self.counters})


def feed_bodies(state: ReplayState, bodies: Iterable[TimedBody]) -> Verdict:
    """Let bodies arrive as they were shipped: twice a second, time passing between them."""
    verdict = Verdict()
    for timed in bodies:
        while _SHORT_PAUSE_NS < timed.realtime_ns - state.now_ns < _LONG_PAUSE_NS:
            state.now_ns += SHIPPED_EVERY_NS
            _note(verdict, state.core.advance(state.now_ns))
        for batch in state.reader.read_bodies([timed.body]):
            _note(verdict, state.core.take(batch, max(timed.realtime_ns, state.now_ns)))
        if timed.realtime_ns - state.now_ns >= SHIPPED_EVERY_NS:
            state.now_ns = timed.realtime_ns
            _note(verdict, state.core.advance(state.now_ns))
    return verdict


def pass_time(state: ReplayState, for_ns: int = _CLOSING_NS) -> Verdict:
    """Let time pass with no data."""
    verdict = Verdict()
    until_ns = state.now_ns + for_ns
    while state.now_ns < until_ns:
        state.now_ns += SHIPPED_EVERY_NS
        _note(verdict, state.core.advance(state.now_ns))
    return verdict


def cut_bodies(bodies: Iterable[TimedBody], begin_ns: int, end_ns: int) -> list[TimedBody]:
    """Return what was written within a stretch of CLOCK_MONOTONIC, from its first ledger chunk on.

    Were the host told of first, the engine would seem to hang since the stretch before.
    """
    own = [timed for timed in bodies if begin_ns <= timed.monotonic_ns < end_ns]
    return list(dropwhile(lambda timed: timed.body.event_name != EVENT_LEDGER, own))


def _note(verdict: Verdict, news: News) -> None:
    verdict.findings += news.findings
    verdict.tables += [batch.scored for batch in news.batches]
