# What the core hands out: values between it and those that send, keep, stamp or show. No behaviour.
from dataclasses import dataclass, field

from otel_llmprism.model.charts import ChartReading
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.findings import Finding
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.model.work import ScoredTable
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch, LedgerSource
from otel_llmprism.service.sentinel.model_book import Fitted
from otel_llmprism.service.sentinel.work import Rows


@dataclass(frozen=True, slots=True)
class RequestVerdict:
    """What is to be told on the span of an ended request."""

    trace_id: bytes
    span_id: bytes
    slow_steps: int
    unexplained_s: float | None
    finding_id: str = ""
    slow_step_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """One ledger batch with what was found of its steps; `rows[i]` is the ledger's row of scored row i."""

    batch: LedgerBatch
    anchor: Anchor
    rows: Rows
    scored: ScoredTable

    @property
    def source(self) -> LedgerSource:
        return self.batch.source

    @staticmethod
    def read_anchor(batch: LedgerBatch | HostBatch) -> Anchor:
        """Return the latest anchor of a batch."""
        chunks = batch.chunks
        return Anchor(int(chunks.anchor_monotonic_ns[-1]), int(chunks.anchor_realtime_ns[-1]))

    @property
    def tables(self) -> LedgerTables:
        return self.batch.tables


@dataclass(frozen=True, slots=True)
class EngineReadings:
    source: LedgerSource
    anchor: Anchor
    readings: tuple[ChartReading, ...]


@dataclass(slots=True)
class News:
    """What one call brought."""

    findings: list[Finding] = field(default_factory=list)
    batches: list[ScoredBatch] = field(default_factory=list)
    readings: list[EngineReadings] = field(default_factory=list)
    verdicts: list[tuple[LedgerSource, RequestVerdict]] = field(default_factory=list)
    fitted: list[Fitted] = field(default_factory=list)

    def extend(self, other: "News") -> None:
        self.findings += other.findings
        self.batches += other.batches
        self.readings += other.readings
        self.verdicts += other.verdicts
        self.fitted += other.fitted
