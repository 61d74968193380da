# The real parts of the sentinel: baseline's expected time and charts, diagnose's findings.
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from otel_llmprism.baseline.charts import ChartConfig, EngineCharts, FleetConfig, FleetGate
from otel_llmprism.baseline.expected import (
    ExpectedTime,
    FitSettings,
    Reservoir,
    ReservoirConfig,
    compare_expected,
    dump_expected,
    fit_expected,
    load_expected,
)
from otel_llmprism.diagnose import Diagnosis, DiagnosisConfig, SourceKey
from otel_llmprism.model.charts import ChartReading
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.findings import Finding
from otel_llmprism.model.hosts import HostTables
from otel_llmprism.model.steps import U64, LedgerTables
from otel_llmprism.model.work import ScoredTable, WorkTable
from otel_llmprism.receivers.ledger import LedgerSource
from otel_llmprism.service.sentinel.parts import Charts, Findings, Model, Parts, Sample
from otel_llmprism.service.sentinel.slow_median import I64


class DiagnosedFindings:
    """A Diagnosis that takes the ledger's sources. Implements parts.Findings."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self._diagnosis = diagnosis

    def take_steps(
        self, source: LedgerSource, tables: LedgerTables, scored: ScoredTable, anchor: Anchor, /
    ) -> None:
        self._diagnosis.take_steps(_to_key(source), tables, scored, anchor)

    def take_host(self, source: LedgerSource, tables: HostTables, anchor: Anchor, /) -> None:
        self._diagnosis.take_host(_to_key(source), tables, anchor)

    def take_readings(
        self, source: LedgerSource, readings: Sequence[ChartReading], anchor: Anchor, /
    ) -> None:
        self._diagnosis.take_readings(_to_key(source), readings, anchor)

    def decide(self, now_ns: int, /) -> list[Finding]:
        return self._diagnosis.decide(now_ns)

    def follow(self, action: str, finding_id: str, until_ns: int, /) -> bool:
        """Do what a person asked for; what a dismissal closes comes with the next decision."""
        if action == "acknowledge":
            return self._diagnosis.acknowledge(finding_id)
        if action == "dismiss":
            return self._diagnosis.dismiss(finding_id)
        return self._diagnosis.silence(finding_id, until_ns)

    def dump(self) -> dict[str, Any]:
        return dict(self._diagnosis.dump())


def build_parts(
    charts: ChartConfig | None = None,
    fit: FitSettings | None = None,
    diagnosis: DiagnosisConfig | None = None,
) -> Parts:
    """Return the parts of a running service; other settings are for evaluations."""
    chart_config, fit_settings = charts or ChartConfig(), fit or FitSettings()
    diagnosis_config = diagnosis or DiagnosisConfig()

    def fit_model(work: WorkTable, cycle_ns: U64, groups: I64, seed: int) -> Model:
        return fit_expected(work, cycle_ns, groups, fit_settings, seed)

    def build_charts(engine_id: str, seed: int) -> Charts:
        return cast("Charts", EngineCharts(engine_id, chart_config, seed))

    def load_charts(engine_id: str, seed: int, state: dict[str, object]) -> Charts:
        return cast("Charts", EngineCharts.load(engine_id, chart_config, seed, state))

    def load_findings(ids: Callable[[], str], state: dict[str, Any]) -> Findings:
        own = Diagnosis(diagnosis_config, ids)
        own.load(state)
        return DiagnosedFindings(own)

    return Parts(
        fit=fit_model,
        dump=lambda model: dump_expected(cast("ExpectedTime", model)),
        load=load_expected,
        compare=_compare,
        build_sample=_build_sample,
        build_charts=build_charts,
        load_charts=load_charts,
        build_gate=lambda: FleetGate(FleetConfig()),
        build_findings=lambda ids: DiagnosedFindings(Diagnosis(diagnosis_config, ids)),
        load_findings=load_findings,
    )


def _build_sample(seed: int) -> Sample:
    return Reservoir(ReservoirConfig(), np.random.default_rng(seed))


def _compare(new: Model, old: Model, work: WorkTable) -> Mapping[int, float]:
    drift = compare_expected(cast("ExpectedTime", new), cast("ExpectedTime", old), work)
    return {kind.kind: kind.median_ratio for kind in drift.kinds}


def _to_key(source: LedgerSource) -> SourceKey:
    return SourceKey(source.engine_id, source.run, source.node)
