# What a fitted model knows, what it does not claim to know, and input that no model can be made of.
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from otel_llmprism.baseline.expected import ExpectedTime, FitSettings, TooFewStepsError, fit_expected
from otel_llmprism.baseline.expected import fit as fit_module
from otel_llmprism.baseline.expected.fit import split_groups
from otel_llmprism.model.steps import U64
from otel_llmprism.model.work import WorkTable

Invent = Callable[..., tuple[WorkTable, U64]]


DECODE, MIXED, PREFILL = 2, 3, 1


def take(work: WorkTable, rows: np.ndarray) -> WorkTable:
    return WorkTable(work.kind[rows], work.names, work.values[rows])


def build_decode(decode: float, kv: float, mode: float = 1.0) -> WorkTable:
    return WorkTable(
        np.array([DECODE], np.uint8),
        ("prefill_tokens", "decode_tokens", "kv_tokens", "requests", "graph_mode"),
        np.array([[0.0, decode, kv, decode, mode]]),
    )


def test_steps_it_never_saw_are_foretold_within_their_noise(model: ExpectedTime, invent: Invent) -> None:
    work, cycle_ns = invent(800, seed=2)
    answer = model.predict(work)
    assert np.abs(answer.expected_ns / cycle_ns - 1).mean() < 0.07  # the noise alone is 0.04
    assert answer.is_known.mean() > 0.99


def test_spread_covers_nineteen_in_twenty_steps_it_never_saw(model: ExpectedTime, invent: Invent) -> None:
    work, cycle_ns = invent(800, seed=3)
    answer = model.predict(work)
    residual = np.log(cycle_ns / answer.expected_ns)
    assert 0.92 < (np.abs(residual) <= 1.96 * answer.spread).mean() < 0.995


def test_half_as_much_work_again_as_in_training_is_still_foretold(model: ExpectedTime) -> None:
    work = build_decode(150, 150 * 2000)
    answer = model.predict(work)
    truth = 1e6 * (2 + 3 + 3e-5 * 300_000)
    assert abs(answer.expected_ns[0] / truth - 1) < 0.15
    assert answer.is_known[0] == 1


def test_far_beyond_trained_work_the_spread_widens_and_the_work_is_unknown(model: ExpectedTime) -> None:
    near = model.predict(build_decode(50, 50_000))
    far = model.predict(build_decode(5000, 50_000_000))
    assert (near.is_known[0], far.is_known[0]) == (1, 0)
    assert far.spread[0] > 2 * near.spread[0]
    assert far.expected_ns[0] > near.expected_ns[0]


def test_a_kind_without_steps_has_no_answer(model: ExpectedTime) -> None:
    work = build_decode(50, 50_000)
    answer = model.predict(replace(work, kind=np.array([PREFILL], np.uint8)))
    assert np.isnan(answer.expected_ns[0])
    assert np.isnan(answer.spread[0])
    assert answer.is_known[0] == 0


def test_a_kind_with_too_few_groups_is_left_out_and_that_is_said(invent: Invent, quick: FitSettings) -> None:
    work, cycle_ns = invent(600, seed=4)
    groups = np.where(work.kind == MIXED, 0, np.arange(600) // 20)
    model = fit_expected(work, cycle_ns, groups, quick, seed=0)
    assert [part.kind for part in model.parts] == [DECODE]
    assert any("Kind 3 was left out" in note for note in model.notes)


def test_a_kind_that_work_does_not_explain_gives_no_answer(invent: Invent, quick: FitSettings) -> None:
    work, _ = invent(600, seed=5)
    noise = np.exp(np.random.default_rng(0).normal(15, 2, 600)).astype(np.uint64)
    model = fit_expected(work, noise, np.arange(600) // 20, quick, seed=0)
    assert np.isnan(model.predict(work).expected_ns).all()
    assert any("gives no answer" in note for note in model.notes)


def test_graph_modes_are_told_apart(invent: Invent, quick: FitSettings) -> None:
    work, cycle_ns = invent(1200, seed=6)
    mode = np.random.default_rng(1).integers(0, 2, 1200)
    values = work.values.copy()
    values[:, 4] = mode
    slower = (cycle_ns * np.where(mode == 1, 1.5, 1.0)).astype(np.uint64)
    model = fit_expected(replace(work, values=values), slower, np.arange(1200) // 40, quick, seed=0)
    ratio = [model.predict(build_decode(50, 50_000, mode)).expected_ns[0] for mode in (0.0, 1.0)]
    assert 1.35 < ratio[1] / ratio[0] < 1.65


def test_work_that_never_changed_in_training_is_unknown_when_it_does(
    invent: Invent, quick: FitSettings
) -> None:
    work, cycle_ns = invent(600, seed=12)
    values = work.values.copy()
    values[:, 0] = 0.0
    bare = WorkTable(np.full(600, DECODE, np.uint8), work.names, values)
    model = fit_expected(bare, cycle_ns, np.arange(600) // 20, quick, seed=0)
    with_prefill = build_decode(50, 50_000)
    with_prefill.values[0, 0] = 512.0
    assert model.predict(build_decode(50, 50_000)).is_known[0] == 1
    assert model.predict(with_prefill).is_known[0] == 0


def test_a_graph_mode_never_seen_is_unknown_work(model: ExpectedTime) -> None:
    assert model.predict(build_decode(50, 50_000, mode=3.0)).is_known[0] == 0


def test_a_missing_feature_is_counted_and_answered_with_more_doubt(model: ExpectedTime) -> None:
    work = build_decode(50, 50_000)
    values = work.values.copy()
    values[0, 2] = np.nan
    gone = replace(work, values=values)
    assert model.count_missing(gone) == 1
    assert np.isfinite(model.predict(gone).expected_ns[0])
    assert model.predict(gone).spread[0] > model.predict(work).spread[0]


def test_a_feature_nobody_told_any_more_is_tolerated(model: ExpectedTime) -> None:
    work = build_decode(50, 50_000)
    bare = WorkTable(work.kind, work.names[:2], work.values[:, :2])
    assert np.isfinite(model.predict(bare).expected_ns[0])


def test_a_further_feature_that_explains_time_is_used(invent: Invent, quick: FitSettings) -> None:
    work, cycle_ns = invent(900, seed=7)
    loras = np.random.default_rng(2).integers(0, 8, 900).astype(float)
    wider = WorkTable(work.kind, (*work.names, "loras"), np.column_stack([work.values, loras]))
    slower = (cycle_ns * (1 + 0.1 * loras)).astype(np.uint64)
    model = fit_expected(wider, slower, np.arange(900) // 30, quick, seed=0)
    assert all(part.report.mape < 0.1 for part in model.parts)


def test_without_lightgbm_the_structure_answers_and_says_so(
    invent: Invent, quick: FitSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_module, "has_learner", lambda: False)
    work, cycle_ns = invent(600, seed=8)
    model = fit_expected(work, cycle_ns, np.arange(600) // 20, quick, seed=0)
    assert all(len(part.curve.trees.ramp) == 0 for part in model.parts)
    assert any("lightgbm is not installed" in note for note in model.notes)
    assert np.abs(model.predict(work).expected_ns / cycle_ns - 1).mean() < 0.1


def test_the_same_seed_gives_the_same_model(invent: Invent, quick: FitSettings) -> None:
    work, cycle_ns = invent(300, seed=9)
    both = [fit_expected(work, cycle_ns, np.arange(300) // 10, quick, seed=5).version for _ in range(2)]
    assert both[0] == both[1]


def test_a_group_is_never_split_between_folds() -> None:
    groups = np.random.default_rng(0).integers(0, 13, 500)
    folds = split_groups(groups, 5)
    assert sorted(np.concatenate(folds)) == list(range(500))
    held = [set(groups[fold]) for fold in folds]
    assert sum(len(one) for one in held) == 13


@pytest.mark.parametrize("rows", [0, 1, 49])
def test_too_few_steps_are_refused(invent: Invent, quick: FitSettings, rows: int) -> None:
    work, cycle_ns = invent(100, seed=10)
    with pytest.raises(TooFewStepsError):
        fit_expected(take(work, np.arange(rows)), cycle_ns[:rows], np.arange(rows), quick, seed=0)


def test_a_table_without_rows_is_answered(model: ExpectedTime) -> None:
    answer = model.predict(take(build_decode(1, 1), np.arange(0)))
    assert len(answer) == 0


@pytest.mark.parametrize(
    ("values", "cycle_ns"),
    [
        (np.full((300, 2), 7.0), np.full(300, 5_000_000)),  # nothing ever changes
        (np.full((300, 2), np.nan), np.full(300, 5_000_000)),  # nothing was told
        (np.arange(600.0).reshape(300, 2), np.where(np.arange(300) % 2, 1_000_000, 3_000_000)),
        (np.full((300, 2), 1e300), np.full(300, 10**14)),
        (np.arange(600.0).reshape(300, 2) * 1e10, np.full(300, 1)),
        (np.full((300, 2), -np.inf), np.arange(300) + 1),
    ],
    ids=["constant", "all NaN", "two durations", "huge", "one nanosecond", "infinite"],
)
def test_strange_series_give_a_model_that_answers(
    quick: FitSettings, values: np.ndarray, cycle_ns: np.ndarray
) -> None:
    work = WorkTable(np.full(300, DECODE, np.uint8), ("decode_tokens", "kv_tokens"), values)
    model = fit_expected(work, cycle_ns.astype(np.uint64), np.arange(300) // 10, quick, seed=0)
    answer = model.predict(work)
    earned = model.parts[0].is_earned
    assert np.isfinite(answer.expected_ns).all() == earned
    assert np.isfinite(answer.spread).all() == earned


def test_cycles_of_zero_or_unknown_teach_nothing(invent: Invent, quick: FitSettings) -> None:
    work, cycle_ns = invent(600, seed=11)
    damaged = cycle_ns.copy()
    damaged[::3] = 0
    damaged[1::3] = np.iinfo(np.uint64).max
    model = fit_expected(work, damaged, np.arange(600) // 20, quick, seed=0)
    assert sum(part.report.steps for part in model.parts) == 200
