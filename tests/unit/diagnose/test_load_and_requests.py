# Faults outside the steps: the front end, the queue, the cache, and silence.
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

ONSET_S = 22.3
SEEDS = (21, 22, 23)


def play_one(stage: Any, seed: int, name: str, size: float, until_s: float = 40.0, **scene: Any) -> list[Any]:
    theatre = stage.theatre()
    fault = stage.fault(name, ONSET_S, 80.0, size)
    theatre.play(stage.scene(seed=seed, faults=[fault], **scene), until_s=until_s)
    return [(one.kind, one.subject.type, one.subject.id) for one in theatre.list_opened()]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [2.0, 3.0])
def test_delay_in_the_front_end_is_the_front_ends(stage: Any, seed: int, size: float) -> None:
    assert play_one(stage, seed, "front_end", size) == [("frontend_delay", "engine", "engine-a")]


@pytest.mark.parametrize("seed", SEEDS)
def test_queue_that_grows_while_steps_are_as_expected_is_overload(stage: Any, seed: int) -> None:
    assert play_one(stage, seed, "overload", 1.5) == [("overload", "engine", "engine-a")]


@pytest.mark.parametrize("seed", SEEDS)
def test_queue_before_a_full_cache_is_want_of_cache(stage: Any, seed: int) -> None:
    assert play_one(stage, seed, "small_cache", 1.5) == [("kv_pressure", "engine", "engine-a")]


@pytest.mark.parametrize("seed", SEEDS)
def test_work_in_flight_without_output_is_a_hang(stage: Any, seed: int) -> None:
    assert play_one(stage, seed, "hang", 2.0) == [("hang", "engine", "engine-a")]


def test_hang_is_told_before_any_chart_has_limits(stage: Any) -> None:
    assert play_one(stage, 3, "hang", 2.0, limits_from_s=1e9) == [("hang", "engine", "engine-a")]


def test_nothing_but_a_hang_is_told_before_charts_have_limits(stage: Any) -> None:
    assert play_one(stage, 3, "operator", 3.0, limits_from_s=1e9) == []


def test_engine_whose_exporter_is_gone_does_not_hang(stage: Any) -> None:
    assert play_one(stage, 4, "hang", 2.0, has_host=False) == []


def test_queue_behind_steps_of_which_nothing_is_expected_is_no_overload(stage: Any) -> None:
    scene = stage.scene(seed=5, faults=[stage.fault("overload", ONSET_S, 80.0, 1.5)])
    real = scene.build_batch

    def forget(*words: Any) -> Any:
        tables, scored = real(*words)
        return tables, replace(scored, expected_ns=np.full(len(scored), np.nan))

    scene.build_batch = forget
    theatre = stage.theatre()
    assert theatre.play(scene, until_s=35.0) == []
