# Whatever steps come in, charts neither raise nor grow without bound, and their state survives a dump.
import json
from typing import Any

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from otel_llmprism.baseline.charts import ChartConfig, EngineCharts, FleetConfig, FleetGate
from otel_llmprism.model.charts import Series
from otel_llmprism.model.work import ExpectationTable

# Shrinking parcels of rows takes minutes and says little more than the rows themselves.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
CONFIG = ChartConfig(min_blocks=3, history_blocks=8, grace_blocks=1, hold_blocks=2)
U64 = st.integers(0, 2**64 - 1)
FLOATS = st.floats(width=64) | st.sampled_from([0.0, 1e7, 2e7])
ROW = st.tuples(
    st.integers(0, 50) | U64,
    st.integers(0, 10**11) | U64,
    st.integers(0, 255) | st.sampled_from([2, 3]),
    st.sampled_from([10**7, 2 * 10**7]) | U64,
    FLOATS,
    FLOATS,
    st.integers(0, 1),
)
PARCELS = st.lists(st.lists(ROW, max_size=12), max_size=12)


@settings(max_examples=50, deadline=None, phases=PHASES)
@given(PARCELS)
def test_no_steps_make_charts_raise(parcels: list[list[Any]]) -> None:
    charts, gate = EngineCharts("engine", CONFIG, seed=1), FleetGate(FleetConfig())
    for parcel in parcels:
        scored = charts.score_steps(*build_columns(parcel))
        assert len(scored) <= len(parcel)
        assert not (scored.is_flagged[np.isnan(scored.residual)]).any()
        for reading in gate.admit(charts.consume(scored)):
            assert reading.score >= 0
            assert reading.count > 0
            assert (reading.onset_ns == 0) or reading.is_alarm
    state = json.loads(json.dumps(charts.dump(), allow_nan=False))
    assert EngineCharts.load("engine", CONFIG, 1, state).dump() == state


@settings(max_examples=50, deadline=None, phases=PHASES)
@given(st.lists(st.tuples(U64, FLOATS, FLOATS), max_size=40))
def test_no_series_makes_charts_raise(rows: list[tuple[int, float, float]]) -> None:
    charts = EngineCharts("engine", CONFIG, seed=1)
    times = np.array([row[0] for row in rows], dtype=np.uint64)
    ratio = np.array([row[1] for row in rows], dtype=np.float64)
    weight = np.array([row[2] for row in rows], dtype=np.float64)
    charts.consume_series(Series.GAP, times, ratio, weight)
    charts.advance(2**63 - 1)
    json.dumps(charts.dump(), allow_nan=False)


def build_columns(parcel: list[Any]) -> tuple[Any, Any, Any, Any, ExpectationTable]:
    columns = list(zip(*parcel, strict=True)) if parcel else [()] * 7
    expectation = ExpectationTable(
        np.array(columns[4], dtype=np.float64),
        np.array(columns[5], dtype=np.float64),
        np.array(columns[6], dtype=np.uint8),
    )
    return (
        np.array(columns[0], dtype=np.uint64),
        np.array(columns[1], dtype=np.uint64),
        np.array(columns[2], dtype=np.uint8),
        np.array(columns[3], dtype=np.uint64),
        expectation,
    )
