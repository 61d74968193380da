# What the sentinel asks of expected time, charts and diagnosis, so that tests can stand in for each;
# wiring.py names the real ones.
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from otel_llmprism.model.charts import ChartReading, Series
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.findings import Finding
from otel_llmprism.model.hosts import HostTables
from otel_llmprism.model.steps import F64, U8, U64, LedgerTables
from otel_llmprism.model.work import ExpectationTable, ScoredTable, WorkTable
from otel_llmprism.receivers.ledger import LedgerSource
from otel_llmprism.service.sentinel.slow_median import I64


class Model(Protocol):
    @property
    def version(self) -> str: ...

    def predict(self, work: WorkTable, /) -> ExpectationTable: ...


class Sample(Protocol):
    """A bounded choice of past steps to learn from."""

    def add(self, work: WorkTable, cycle_ns: U64, time_ns: U64, /) -> None: ...

    def read(self) -> tuple[WorkTable, U64, I64]: ...


class Charts(Protocol):
    """Of one engine and run."""

    def score_steps(
        self, step: U64, time_ns: U64, kind: U8, cycle_ns: U64, expectation: ExpectationTable, /
    ) -> ScoredTable: ...

    def consume(self, scored: ScoredTable, /, *, is_rehearsal: bool = False) -> list[ChartReading]: ...

    def consume_series(
        self, series: Series, time_ns: U64, log_ratio: F64, weight: F64, /
    ) -> list[ChartReading]: ...

    def advance(self, time_ns: int, /) -> list[ChartReading]: ...

    def mark_regime(self, why: str, time_ns: int, /) -> None: ...

    def dump(self) -> dict[str, object]: ...


class Gate(Protocol):
    def admit(self, readings: Sequence[ChartReading], /) -> list[ChartReading]: ...


class Findings(Protocol):
    """Diagnosis of the whole fleet; sources are those of the ledger."""

    def take_steps(
        self, source: LedgerSource, tables: LedgerTables, scored: ScoredTable, anchor: Anchor, /
    ) -> None: ...

    def take_host(self, source: LedgerSource, tables: HostTables, anchor: Anchor, /) -> None: ...

    def take_readings(
        self, source: LedgerSource, readings: Sequence[ChartReading], anchor: Anchor, /
    ) -> None: ...

    def decide(self, now_ns: int, /) -> list[Finding]: ...

    def follow(self, action: str, finding_id: str, until_ns: int, /) -> bool: ...

    def dump(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """`fit` raises ValueError for too little to learn from, `load` for bytes that are no model."""

    fit: Callable[[WorkTable, U64, I64, int], Model]  # work, cycles, groups, seed
    dump: Callable[[Model], bytes]
    load: Callable[[bytes], Model]
    compare: Callable[[Model, Model, WorkTable], Mapping[int, float]]  # new / old by kind, as a ratio
    build_sample: Callable[[int], Sample]
    build_charts: Callable[[str, int], Charts]
    load_charts: Callable[[str, int, dict[str, object]], Charts]
    build_gate: Callable[[], Gate]
    build_findings: Callable[[Callable[[], str]], Findings]
    load_findings: Callable[[Callable[[], str], dict[str, Any]], Findings]
