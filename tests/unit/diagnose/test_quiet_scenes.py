# Scenes in which something happens and nothing is wrong: no finding may come of them.
from typing import Any

import pytest

SEEDS = (31, 32, 33)
pytestmark = pytest.mark.parametrize("seed", SEEDS)


def play_quietly(stage: Any, *scenes: Any, until_s: float = 40.0) -> list[Any]:
    theatre = stage.theatre()
    return [(one.kind, one.summary) for one in theatre.play(*scenes, until_s=until_s)]


def test_nothing_is_found_where_nothing_happens(stage: Any, seed: int) -> None:
    assert play_quietly(stage, stage.scene(seed=seed, ranks=2)) == []


def test_more_load_is_no_incident(stage: Any, seed: int) -> None:
    scene = stage.scene(seed=seed, load=lambda at: 1.0 if at < 20 else 2.5)
    assert play_quietly(stage, scene) == []


def test_burst_whose_queue_drains_is_no_incident(stage: Any, seed: int) -> None:
    scene = stage.scene(seed=seed, faults=[stage.fault("burst", 22.0, 24.5, 2.0)])
    assert play_quietly(stage, scene) == []


def test_busy_host_that_slows_no_step_is_no_incident(stage: Any, seed: int) -> None:
    scene = stage.scene(seed=seed, faults=[stage.fault("busy_host", 20.0, 90.0, 5.0)])
    assert play_quietly(stage, scene) == []


def test_one_noisy_step_is_no_incident(stage: Any, seed: int) -> None:
    scene = stage.scene(seed=seed, faults=[stage.fault("one_noisy_step", 22.0, 22.03, 4.0)])
    assert play_quietly(stage, scene) == []


def test_restart_of_the_engine_is_no_incident(stage: Any, seed: int) -> None:
    theatre = stage.theatre()
    theatre.play(stage.scene(seed=seed), until_s=20.0)
    again = stage.scene(seed=seed + 100, run="1" * 32)
    again.anchor = type(again.anchor)(again.anchor.monotonic_ns, again.anchor.realtime_ns + 25 * 10**9)
    for at, tell in again.play(20.0):
        tell(theatre.diagnosis)
        theatre.told += theatre.diagnosis.decide(stage.epoch_ns + int((at + 25) * 1e9))
    assert theatre.told == []


def test_alarm_without_loss_is_no_incident(stage: Any, seed: int) -> None:
    scene = stage.scene(seed=seed, faults=[stage.fault("operator", 22.0, 22.2, 1.3)])
    assert play_quietly(stage, scene) == []
