# What the query API and the page may ask of the sentinel, and do to a finding. Whoever has the data
# implements it: safe to call from several threads, bounded, and quick, since a person waits for the answer.
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from otel_llmprism.model.findings import Finding


class EngineState(StrEnum):
    LEARNING = "learning"  # no expected time yet: nothing can alarm
    WATCHING = "watching"
    ALARM = "alarm"  # at least one finding of it is not closed


@dataclass(frozen=True, slots=True)
class ModelView:
    """The expected time in use; `version` is empty before there is one."""

    version: str = ""
    trained_steps: int = 0  # while learning: the steps gathered so far
    error: float | None = None  # median |cycle / expected - 1|, out of fold
    wanted_steps: int = 0  # while learning: about how many it takes; 0: cannot be told
    note: str = ""  # one sentence for a person, for example that it drifted from the frozen reference


@dataclass(frozen=True, slots=True)
class EngineView:
    """One engine as it stands now; times are real time."""

    id: str
    run: str
    name: str
    job: str
    state: EngineState
    model: ModelView
    steps: int  # seen since it was first heard of
    findings_open: int
    last_seen_ns: int


@dataclass(frozen=True, slots=True)
class BlockView:
    """One chart block of one kind of step: about a second. Work is the mean a step, None where not told."""

    t_ns: int  # real time of its begin
    kind: str  # prefill, decode, mixed, train
    steps: int
    observed_s: float  # robust centre of the steps' cycles
    expected_s: float | None  # the same of what was expected; None: no model yet, or work never seen
    upper_s: float | None  # above it the block alarms
    excess_s: float  # sum of cycle - expected over its steps
    gap_s: float  # sum, between steps while work waited
    prefill_tokens: float | None = None
    decode_tokens: float | None = None
    kv_tokens: float | None = None
    waiting: float | None = None  # requests
    running: float | None = None
    is_alarm: bool = False


@dataclass(frozen=True, slots=True)
class FindingView:
    """The newest state of a finding, with what people said about it."""

    finding: Finding
    is_acknowledged: bool = False
    is_dismissed: bool = False  # a person said: not an incident
    silenced_until_ns: int | None = None
    trace_id: str = ""  # of its spans, in hex; empty where none is made


class SentinelView(Protocol):
    """Unknown ids are answered with None or False, never with an error."""

    def list_engines(self) -> Sequence[EngineView]: ...

    def read_series(self, engine_id: str, begin_ns: int, end_ns: int) -> Sequence[BlockView] | None:
        """Return the blocks that begin in [begin_ns, end_ns), in order of time; None: no such engine."""
        ...

    def list_findings(self) -> Sequence[FindingView]: ...

    def read_finding(self, finding_id: str) -> tuple[FindingView, Sequence[Finding]] | None:
        """Return a finding and its states, oldest first (bounded; the newest is the last)."""
        ...

    def acknowledge(self, finding_id: str) -> bool: ...

    def dismiss(self, finding_id: str) -> bool:
        """Close it as no incident; its steps may be learned from again."""
        ...

    def silence(self, finding_id: str, until_ns: int) -> bool:
        """Keep its cause quiet until then (same engine, subject and kind); a time that is past ends it."""
        ...


class NoSentinel:
    """Implements SentinelView for a service that watches nothing."""

    def list_engines(self) -> Sequence[EngineView]:
        return ()

    def read_series(self, engine_id: str, begin_ns: int, end_ns: int) -> Sequence[BlockView] | None:
        del engine_id, begin_ns, end_ns
        return None

    def list_findings(self) -> Sequence[FindingView]:
        return ()

    def read_finding(self, finding_id: str) -> tuple[FindingView, Sequence[Finding]] | None:
        del finding_id
        return None

    def acknowledge(self, finding_id: str) -> bool:
        del finding_id
        return False

    def dismiss(self, finding_id: str) -> bool:
        del finding_id
        return False

    def silence(self, finding_id: str, until_ns: int) -> bool:
        del finding_id, until_ns
        return False
