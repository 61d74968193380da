import numpy as np
import pytest

from otel_llmprism.baseline.charts import FleetConfig, FleetGate
from otel_llmprism.model.charts import ChartKey, ChartReading, Detector, Series

SECOND_NS = 1_000_000_000
DAY_S = 86_400


def make_reading(
    engine: int, score: float, *, second: int = 100, is_alarm: bool | None = None, is_recovered: bool = False
) -> ChartReading:
    return ChartReading(
        key=ChartKey(f"engine-{engine}", Series.CYCLE, 2),
        begin_ns=(second - 1) * SECOND_NS,
        end_ns=second * SECOND_NS,
        count=50,
        level=0.1,
        score=score,
        detector=Detector.EWMA,
        is_alarm=score > 1 if is_alarm is None else is_alarm,
        onset_ns=5,
        shift=0.1,
        upper_limit=0.05,
        is_recovered=is_recovered,
    )


def test_readings_without_alarm_pass_unchanged() -> None:
    readings = [make_reading(n, 0.5) for n in range(5)]
    assert FleetGate(FleetConfig()).admit(readings) == readings


def test_strong_alarm_passes_at_once() -> None:
    reading = make_reading(0, 3.0)
    assert FleetGate(FleetConfig()).admit([reading]) == [reading]


def test_weak_alarm_of_one_among_many_is_taken_back() -> None:
    gate = FleetGate(FleetConfig())
    gate.admit([make_reading(n, 0.2) for n in range(1000)])
    (told,) = gate.admit([make_reading(3, 1.3)])
    assert not told.is_alarm
    assert told.onset_ns == 0
    assert told.score == 1.3


def test_same_alarm_passes_in_a_small_fleet() -> None:
    gate = FleetGate(FleetConfig())
    gate.admit([make_reading(n, 0.2) for n in range(3)])
    assert gate.admit([make_reading(1, 1.3)])[0].is_alarm


def test_many_weak_alarms_together_carry_each_other() -> None:
    gate = FleetGate(FleetConfig())
    gate.admit([make_reading(n, 0.2) for n in range(1000)])
    assert all(reading.is_alarm for reading in gate.admit([make_reading(n, 1.4) for n in range(200)]))


def test_recovery_is_told_of_admitted_alarms_only() -> None:
    gate = FleetGate(FleetConfig())
    gate.admit([make_reading(n, 0.2) for n in range(1000)])
    gate.admit([make_reading(0, 4.0), make_reading(1, 1.1)])
    recovered = gate.admit([make_reading(n, 0.3, second=101, is_recovered=True) for n in (0, 1)])
    assert [reading.is_recovered for reading in recovered] == [True, False]


def test_alarm_that_lasts_over_the_end_of_a_horizon_stays_admitted() -> None:
    gate = FleetGate(FleetConfig())
    gate.admit([make_reading(n, 0.2, second=DAY_S - 1) for n in range(1000)])
    gate.admit([make_reading(0, 4.0, second=DAY_S - 1)])
    assert gate.admit([make_reading(0, 1.1, second=DAY_S + 5)])[0].is_alarm
    gate.admit([make_reading(0, 0.1, second=DAY_S + 9, is_recovered=True)])
    gate.admit([make_reading(0, 0.1, second=DAY_S + 10)])
    assert not gate.admit([make_reading(0, 1.1, second=DAY_S + 20)])[0].is_alarm


def test_charts_beyond_the_bound_are_forgotten_oldest_first() -> None:
    gate = FleetGate(FleetConfig(max_charts=10))
    for n in range(500):
        gate.admit([make_reading(n, 0.2)])
    assert gate.admit([make_reading(499, 1.35)])[0].is_alarm


@pytest.mark.parametrize("charts", [5, 400])
def test_false_discoveries_stay_within_the_stated_share(charts: int) -> None:
    # Normal charts reach a score by the law their limits were made for; every horizon is a trial.
    rng = np.random.default_rng(11)
    config = FleetConfig(false_discovery_rate=0.05)
    false_share = []
    for _ in range(300):
        gate = FleetGate(config)
        log_p = np.log(rng.random(charts))
        scores = (np.log(config.horizon_blocks) - log_p) / np.log(config.run_length_blocks)
        gate.admit([make_reading(n, 0.1) for n in range(charts)])
        told = gate.admit([make_reading(n, float(score)) for n, score in enumerate(scores)])
        false_share.append(any(reading.is_alarm for reading in told))
    assert np.mean(false_share) <= 0.05
