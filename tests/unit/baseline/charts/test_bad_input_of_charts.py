import numpy as np
import pytest

from otel_llmprism.baseline.charts import ChartConfig, EngineCharts
from otel_llmprism.baseline.charts.blocks import MAX_OPEN_ROWS
from otel_llmprism.model.charts import Series
from otel_llmprism.testing.chart_feed import SECOND_NS, ChartFeed


@pytest.fixture
def charts() -> EngineCharts:
    return EngineCharts("engine", ChartConfig(), seed=1)


def test_constant_series_neither_alarms_nor_hides_a_slowdown(charts: EngineCharts) -> None:
    feed = ChartFeed(charts, seed=1, sigma=0.0)
    assert not any(reading.is_alarm for reading in feed.run(300))
    assert any(reading.is_alarm for reading in feed.run(5, 1.3))


def test_two_valued_durations_are_normal_when_they_always_were(charts: EngineCharts) -> None:
    rng = np.random.default_rng(4)
    feed = ChartFeed(charts, seed=1, sigma=0.0)
    readings = feed.run(600, lambda noise: np.where(rng.random(len(noise)) < 0.5, 1.0, 1.4))
    assert not any(reading.is_alarm for reading in readings)
    assert feed.read_flags().mean() < 0.01


def test_one_step_an_hour_is_charted_step_by_step(charts: EngineCharts) -> None:
    feed = ChartFeed(charts, seed=1)
    rng = np.random.default_rng(5)
    for hour in range(1, 80):
        slow = 3.0 if hour > 70 else 1.0
        cycle = np.array([2e7 * slow * np.exp(0.02 * rng.standard_normal())])
        time_ns = np.array([hour * 3600.0e9])
        feed.feed(time_ns, cycle, np.array([2e7]))
    alarms = [reading for reading in feed.readings if reading.is_alarm]
    assert alarms
    assert alarms[0].end_ns >= 71 * 3600 * SECOND_NS


def test_million_steps_a_minute_stay_within_one_blocks_memory(charts: EngineCharts) -> None:
    feed = ChartFeed(charts, seed=1, cycle_s=6e-5)
    readings = feed.run(45)
    assert feed.step > 600_000
    assert not any(reading.is_alarm for reading in readings)
    assert any(reading.is_alarm for reading in feed.run(2, 2.0))


def test_clock_that_stands_still_fills_one_block_and_no_more(charts: EngineCharts) -> None:
    feed = ChartFeed(charts, seed=1)
    rows = MAX_OPEN_ROWS + 10
    ones = np.ones(rows)
    feed.feed(ones * SECOND_NS, ones * 2e7, ones * 2e7)
    assert charts.counts["over_block"] == 10


def test_clock_that_jumps_back_or_forward_is_followed(charts: EngineCharts) -> None:
    feed = ChartFeed(charts, seed=1)
    feed.run(60)
    feed.now_ns += 30 * 86_400 * SECOND_NS
    assert not any(reading.is_alarm for reading in feed.run(20))
    feed.now_ns = 5 * SECOND_NS
    assert not any(reading.is_alarm for reading in feed.run(20))
    assert charts.counts["clock_back"] == 1
    alarms = [reading for reading in feed.run(5, 2.0) if reading.is_alarm]
    assert alarms
    assert alarms[0].end_ns < 40 * SECOND_NS


def test_rows_that_come_late_are_counted_and_kept(charts: EngineCharts) -> None:
    feed = ChartFeed(charts, seed=1)
    times = np.array([5.0, 4.0, 5.5, 7.0]) * SECOND_NS
    ones = np.ones(4)
    feed.feed(times, ones * 2e7, ones * 2e7)
    assert charts.counts["late"] == 1
    assert [reading.count for reading in feed.readings] == [3]


def test_repeated_parcels_change_nothing(charts: EngineCharts) -> None:
    feed = ChartFeed(charts, seed=1)
    feed.run(5)
    assert all(not charts.consume(scored) for scored in feed.scored)
    assert charts.counts["repeats"] == feed.step


def test_step_ids_that_begin_anew_are_a_new_regime(charts: EngineCharts) -> None:
    feed = ChartFeed(charts, seed=1)
    feed.run(60)
    feed.step = 0
    readings = feed.run(10, 2.0)
    assert not any(reading.is_alarm for reading in readings)
    assert readings[-1].regime == 1


def test_numbers_that_mean_nothing_are_counted(charts: EngineCharts) -> None:
    times = np.array([1, 2, 3, 2**64 - 1], dtype=np.uint64)
    ratio = np.array([np.nan, np.inf, 0.0, 1e300])
    weight = np.array([1.0, 1.0, 0.0, 1.0])
    charts.consume_series(Series.GAP, times, ratio, weight)
    assert charts.counts["no_residual"] == 3
    assert charts.advance(2**63 - 1) == []


def test_empty_tables_are_fine(charts: EngineCharts) -> None:
    nothing = np.empty(0)
    assert charts.consume_series(Series.GAP, nothing.astype(np.uint64), nothing, nothing) == []
    feed = ChartFeed(charts, seed=1)
    feed.run(1)
    empty = type(feed.scored[0])(*(getattr(feed.scored[0], name)[:0] for name in feed.scored[0].__slots__))
    assert charts.consume(empty) == []
