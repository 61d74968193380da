import numpy as np
import pytest

from otel_llmprism.baseline.charts import ChartConfig, EngineCharts
from otel_llmprism.model.charts import ChartReading, Series
from otel_llmprism.model.work import ExpectationTable
from otel_llmprism.testing.chart_feed import DECODE, IDLE, SECOND_NS, ChartFeed

LEARN_S = 60.0


@pytest.fixture
def feed() -> ChartFeed:
    return ChartFeed(EngineCharts("engine", ChartConfig(), seed=1), seed=2)


def list_alarms(readings: list[ChartReading]) -> list[ChartReading]:
    return [reading for reading in readings if reading.is_alarm]


def test_nothing_alarms_or_flags_before_there_are_enough_blocks(feed: ChartFeed) -> None:
    readings = feed.run(10) + feed.run(10, 3.0)
    assert not list_alarms(readings)
    assert not feed.read_flags().any()
    assert all(reading.score == 0.0 and np.isnan(reading.upper_limit) for reading in readings)


def test_normal_running_raises_no_alarm(feed: ChartFeed) -> None:
    readings = feed.run(600)
    assert len(readings) >= 595
    assert not list_alarms(readings)


@pytest.mark.parametrize(("factor", "within_s"), [(1.3, 10.0), (2.0, 1.5), (3.0, 1.5)])
def test_slowdown_is_found_in_time_and_its_onset_and_shift_are_told(
    feed: ChartFeed, factor: float, within_s: float
) -> None:
    feed.run(LEARN_S)
    onset_ns = feed.now_ns
    alarms = list_alarms(feed.run(20, factor))
    assert alarms[0].end_ns <= onset_ns + within_s * SECOND_NS
    assert abs(alarms[0].onset_ns - onset_ns) <= SECOND_NS
    assert alarms[-1].shift == pytest.approx(np.log(factor), abs=0.05)


def test_faster_steps_are_no_alarm(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    assert not list_alarms(feed.run(60, 0.6))


def test_shift_below_what_matters_is_no_alarm_however_long(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    assert not list_alarms(feed.run(600, 1.03))


def test_one_very_long_step_is_no_alarm(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    alone = np.array([feed.now_ns + 4e8])
    feed.feed(alone, np.array([4e8]), np.array([2e7]))
    assert not list_alarms(feed.run(10))


def test_delay_that_hits_one_step_in_ten_is_an_alarm(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    alarms = list_alarms(feed.run(10, lambda noise: np.where(np.arange(len(noise)) % 10 == 0, 10.0, 1.0)))
    assert alarms
    assert alarms[-1].shift == pytest.approx(np.log(1.9), abs=0.15)


def test_recovery_is_told_once_and_ends_the_alarm(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    feed.run(10, 2.0)
    end_ns = feed.now_ns
    readings = feed.run(30)
    recovered = [reading for reading in readings if reading.is_recovered]
    assert len(recovered) == 1
    assert recovered[0].end_ns <= end_ns + 3 * SECOND_NS
    assert not list_alarms(readings[readings.index(recovered[0]) :])


def test_slow_steps_of_an_alarm_are_not_learned(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    feed.run(300, 1.3)
    feed.run(60)
    assert list_alarms(feed.run(10, 1.3))


def test_marked_regime_is_learned_anew_without_alarm(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    feed.charts.mark_regime("new model", feed.now_ns)
    readings = feed.run(120, 1.5)
    assert not list_alarms(readings)
    assert {reading.regime for reading in readings} == {1}
    assert list_alarms(feed.run(10, 3.0))


def test_same_rise_is_a_regime_with_new_work_and_a_slowdown_without(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    assert not list_alarms(feed.run(60, 1.5, spread=0.09, load=3.0))
    assert feed.charts.counts["regimes_by_work"] <= 1
    other = ChartFeed(EngineCharts("engine", ChartConfig(), seed=1), seed=2)
    other.run(LEARN_S)
    assert list_alarms(other.run(10, 1.5))


def test_slowdown_in_work_that_has_been_new_for_long_is_still_found(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    feed.run(60, spread=0.06, load=1.3)
    assert list_alarms(feed.run(10, 2.0, spread=0.06, load=1.3))


def test_work_never_seen_is_counted_and_not_scored(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    readings = feed.run(10, 3.0, is_known=0)
    assert not list_alarms(readings)
    assert readings[-1].score == 0.0
    assert np.isnan(readings[-1].level)
    assert feed.charts.counts["unseen_blocks"] >= 8
    assert feed.charts.counts["unseen_steps"] >= 150


def test_flags_follow_an_incident_closely(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    first = feed.step
    feed.run(10, 1.3)
    last = feed.step
    feed.run(30)
    flags = feed.read_flags()
    assert flags[first + 3 : last].mean() > 0.99
    assert flags[last + 2 :].mean() < 0.005
    assert flags[:first].mean() < 0.005


def test_steps_of_kinds_that_are_not_charted_are_left_out(feed: ChartFeed) -> None:
    feed.run(1, kind=IDLE)
    assert len(feed.scored[0]) == 0
    assert not feed.readings


def test_same_data_and_seed_give_the_same_readings() -> None:
    runs = []
    for _ in range(2):
        feed = ChartFeed(EngineCharts("engine", ChartConfig(), seed=5), seed=6)
        feed.run(LEARN_S)
        runs.append(feed.run(20, 1.2))
    assert runs[0] == runs[1]


def test_how_steps_are_cut_into_parcels_changes_no_reading() -> None:
    feed = ChartFeed(EngineCharts("engine", ChartConfig(), seed=5), seed=6)
    feed.run(LEARN_S)
    feed.run(10, 1.4)
    whole = EngineCharts("engine", ChartConfig(), seed=5)
    readings: list[ChartReading] = []
    for first in range(0, len(feed.scored), 7):
        for scored in feed.scored[first : first + 7]:
            half = len(scored) // 2
            for rows in (slice(0, half), slice(half, None)):
                part = type(scored)(*(getattr(scored, name)[rows] for name in scored.__slots__))
                readings += whole.consume(part)
    assert readings == feed.readings


def test_rehearsal_teaches_and_tells_nothing(feed: ChartFeed) -> None:
    feed.run(LEARN_S)
    fresh = EngineCharts("engine", ChartConfig(), seed=1)
    assert [reading for scored in feed.scored for reading in fresh.consume(scored, is_rehearsal=True)] == []
    later = ChartFeed(fresh, seed=9)
    later.now_ns, later.step = feed.now_ns, feed.step
    assert list_alarms(later.run(5, 2.0))


def test_open_block_closes_by_explicit_time(feed: ChartFeed) -> None:
    feed.run(1.4)
    before = len(feed.readings)
    readings = feed.charts.advance(feed.now_ns + 2 * SECOND_NS)
    assert len(readings) == 1
    assert readings[0].end_ns == 2 * SECOND_NS
    assert before == 1


def test_series_without_kinds_are_charted_too() -> None:
    charts = EngineCharts("engine", ChartConfig(), seed=1)
    rng = np.random.default_rng(3)
    alarms = []
    for second in range(120):
        times = (second + rng.random(10)) * 1e9
        ratio = 0.3 * rng.standard_normal(10) + (1.5 if second >= 100 else 0.0)
        readings = charts.consume_series(Series.QUEUE, np.sort(times).astype(np.uint64), ratio, np.ones(10))
        alarms += list_alarms(readings)
        assert all(reading.key.series is Series.QUEUE and reading.key.kind == 0 for reading in readings)
    assert alarms
    assert 99e9 <= alarms[0].onset_ns <= 101e9


def test_expectation_that_is_missing_is_no_residual(feed: ChartFeed) -> None:
    scored = feed.charts.score_steps(
        np.arange(4, dtype=np.uint64),
        np.arange(1, 5, dtype=np.uint64) * 10**7,
        np.full(4, DECODE, dtype=np.uint8),
        np.array([10**7, 0, 2**64 - 1, 10**7], dtype=np.uint64),
        ExpectationTable(np.array([np.nan, 1e7, 1e7, 1e7]), np.full(4, np.nan), np.ones(4, dtype=np.uint8)),
    )
    assert np.isnan(scored.residual[:3]).all()
    assert scored.residual[3] == 0.0
    feed.charts.consume(scored)
    assert feed.charts.counts["no_residual"] == 3
