# Data that is wrong: counted, never raised, and never a finding out of nothing.
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.steps import UNKNOWN

S = 1_000_000_000


def play_damaged(stage: Any, damage: Any, until_s: float = 26.0, **scene: Any) -> Any:
    """Play a scene whose every batch goes through `damage` first."""
    made = stage.scene(seed=41, step_s=0.06, ranks=2, **scene)
    real = made.build_batch
    made.build_batch = lambda *words: damage(*real(*words))
    theatre = stage.theatre()
    theatre.play(made, until_s=until_s)
    return theatre


def spoil_scores(tables: Any, scored: Any) -> Any:
    return tables, replace(
        scored,
        expected_ns=np.where(np.arange(len(scored)) % 3, np.nan, np.inf),
        residual=np.full(len(scored), np.nan),
    )


def spoil_times(tables: Any, scored: Any) -> Any:
    unknown = np.full(len(tables.steps), UNKNOWN)
    return replace(tables, steps=replace(tables.steps, output_ready_ns=unknown, cycle_ns=unknown)), scored


def spoil_ranks(tables: Any, scored: Any) -> Any:
    ranks = replace(
        tables.ranks, identity_row=tables.ranks.identity_row + 7, end_ns=tables.ranks.start_ns - 5
    )
    return replace(tables, ranks=ranks), scored


def spoil_joins(tables: Any, scored: Any) -> Any:
    return tables, replace(scored, step=scored.step + 1_000_000)


def spoil_rows(tables: Any, scored: Any) -> Any:
    collectives = replace(tables.collectives, step_row=tables.collectives.step_row + 999)
    return replace(tables, collectives=collectives), scored


@pytest.mark.parametrize("damage", [spoil_scores, spoil_times, spoil_ranks, spoil_joins, spoil_rows])
def test_spoilt_tables_stop_nothing_and_find_nothing(stage: Any, damage: Any) -> None:
    theatre = play_damaged(stage, damage)
    assert theatre.told == []
    assert theatre.diagnosis.describe()["counted"]


def test_values_that_are_no_numbers_are_counted(stage: Any) -> None:
    scene = stage.scene(seed=42, step_s=0.06)
    real = scene.sample_host

    def sample(at_s: float) -> Any:
        tables = real(at_s)
        value = tables.samples.value.copy()
        value[::2] = np.nan
        return replace(tables, samples=replace(tables.samples, value=value))

    scene.sample_host = sample
    theatre = stage.theatre()
    assert theatre.play(scene, until_s=20.0) == []
    assert theatre.diagnosis.describe()["counted"]["refused_values"] > 0


@pytest.mark.parametrize("jump_s", [-3600, -2, 5, 86_400 * 400])
def test_clock_that_jumps_opens_nothing_and_data_after_it_counts(stage: Any, jump_s: int) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=43, faults=[stage.fault("operator", 44.0, 70.0, 2.0)])
    anchor = scene.anchor
    for at, tell in scene.play(56.0):
        moved = jump_s * S if at > 20.0 else 0
        scene.anchor = Anchor(anchor.monotonic_ns, anchor.realtime_ns + moved)
        tell(theatre.diagnosis)
        theatre.told += theatre.diagnosis.decide(stage.epoch_ns + int(at * S) + moved)
    (first,) = theatre.list_opened()
    assert first.kind == "step_regression"
    assert 44 <= (first.opened_ns - stage.epoch_ns) / S - jump_s <= 47


def test_engine_without_ranks_host_or_requests_is_diagnosed_all_the_same(stage: Any) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=44, has_host=False, faults=[stage.fault("scheduler", 22.0, 60.0, 2.0)])
    theatre.play(scene, until_s=28.0)
    assert [str(one.kind) for one in theatre.list_opened()] == ["scheduler_delay"]


def test_lost_steps_lower_the_confidence(stage: Any) -> None:
    confidences = []
    for every in (1_000_000, 2):
        theatre = stage.theatre()
        scene = stage.scene(seed=45, faults=[stage.fault("scheduler", 22.0, 60.0, 2.0)])
        real = scene.make_step

        def make(at_s: float, scene: Any = scene, real: Any = real, every: int = every) -> Any:
            if scene.step % every == 0:
                scene.step += 1
            return real(at_s)

        scene.make_step = make
        theatre.play(scene, until_s=28.0)
        confidences.append(theatre.list_opened()[0].confidence)
    assert confidences[1] < 0.7 * confidences[0]


def test_more_engines_than_fit_are_counted(stage: Any) -> None:
    diagnosis = stage.diagnosis()
    diagnosis._config = replace(diagnosis._config, max_engines=2)
    for number in range(5):
        scene = stage.scene(seed=46, engine_id=str(number))
        for _, tell in scene.play(0.5):
            tell(diagnosis)
    described = diagnosis.describe()
    assert [engine["id"] for engine in described["engines"]] == ["0", "1"]
    assert described["counted"]["engines_beyond_limit"] > 0


def test_page_blocks_tell_of_each_second(stage: Any) -> None:
    theatre = stage.theatre()
    theatre.play(stage.scene(seed=47, faults=[stage.fault("operator", 22.0, 60.0, 2.0)]), until_s=27.0)
    (engine,) = theatre.diagnosis.describe()["engines"]
    assert engine["state"] == "alarm"
    assert engine["findings_open"] == 1
    blocks = engine["blocks"]
    assert [block["t_ns"] // S for block in blocks] == sorted({block["t_ns"] // S for block in blocks})
    last = blocks[-1]
    assert last["kind"] == "decode"
    assert last["observed_s"] > 1.8 * last["expected_s"]
    assert last["observed_s"] > last["upper_s"] > last["expected_s"]
    assert last["is_alarm"]
    assert not blocks[5]["is_alarm"]
