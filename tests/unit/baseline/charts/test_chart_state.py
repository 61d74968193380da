import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from otel_llmprism.baseline.charts import ChartConfig, ChartStateError, EngineCharts
from otel_llmprism.testing.chart_feed import ChartFeed


@pytest.fixture(scope="module")
def feed() -> ChartFeed:
    feed = ChartFeed(EngineCharts("engine", ChartConfig(), seed=1), seed=2)
    feed.run(60)
    feed.run(5, 1.5)
    return feed


@pytest.fixture
def state(feed: ChartFeed) -> Any:
    return json.loads(json.dumps(feed.charts.dump(), allow_nan=False))


def resume(feed: ChartFeed, state: object) -> ChartFeed:
    later = ChartFeed(EngineCharts.load("engine", ChartConfig(), 1, state), seed=3)
    later.now_ns, later.step = feed.now_ns, feed.step
    return later


def test_alarm_lasts_over_a_restart(feed: ChartFeed, state: object) -> None:
    later = resume(feed, state)
    readings = later.run(5, 1.5)
    assert all(reading.is_alarm for reading in readings)
    assert readings[0].onset_ns == feed.readings[-1].onset_ns
    assert sum(reading.is_recovered for reading in later.run(10)) == 1


def test_limits_and_flags_last_over_a_restart(feed: ChartFeed, state: object) -> None:
    later = resume(feed, state)
    later.run(1, 1.5)
    assert later.read_flags().mean() > 0.9
    assert resume(feed, state).charts.dump() == feed.charts.dump()


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.update(version=99),
        lambda state: state.update(charts="many"),
        lambda state: state.update(charts=state["charts"] * 100),
        lambda state: state.update(last_step="1"),
        lambda state: state["charts"][0].update(series="weather"),
        lambda state: state["charts"][0].update(kind=-1),
        lambda state: state["charts"][0].pop("rows"),
        lambda state: state["charts"][0]["rows"][0].append(1.0),
        lambda state: state["charts"][0]["rows"][0].__setitem__(0, float("inf")),
        lambda state: state["charts"][0]["rows"][0].__setitem__(2, 0.0),
        lambda state: state["charts"][0]["rows"][0].__setitem__(0, 1e300),
        lambda state: state["charts"][0]["spread"].__setitem__(0, 0.0),
        lambda state: state["charts"][0]["spread"].pop(),
        lambda state: state["charts"][0].update(alarm=[1, 2, 9, 0.0, 0]),
        lambda state: state["charts"][0].update(limits=[0.0] * 19),
        lambda state: state["charts"][0].update(limits=[1.0]),
        lambda state: state["charts"][0].update(sums=[[0.0], [0.0]]),
        lambda state: state["charts"].append([]),
    ],
)
def test_damaged_state_is_refused_with_one_line(state: Any, damage: Callable[[Any], None]) -> None:
    damaged = copy.deepcopy(state)
    damage(damaged)
    with pytest.raises(ChartStateError) as refused:
        EngineCharts.load("engine", ChartConfig(), 1, damaged)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("nonsense", [None, 7, "x", [], {}])
def test_what_is_no_state_is_refused(nonsense: object) -> None:
    with pytest.raises(ChartStateError):
        EngineCharts.load("engine", ChartConfig(), 1, nonsense)
