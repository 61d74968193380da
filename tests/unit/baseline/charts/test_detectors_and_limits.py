import numpy as np
import pytest

from otel_llmprism.baseline.charts.config import ChartConfig
from otel_llmprism.baseline.charts.detectors import SumDetectors, trace_cusum, trace_ewma, trace_window
from otel_llmprism.baseline.charts.limits import History, extrapolate_tail, fit_limits, resample_rows
from otel_llmprism.baseline.charts.step_flags import StepFlagger, fit_step_limits

CONFIG = ChartConfig()


def make_history(blocks: int, seed: int, correlation: float = 0.0) -> History:
    rng = np.random.default_rng(seed)
    centre = 0.02 * rng.standard_normal(blocks)
    for row in range(1, blocks):
        centre[row] = correlation * centre[row - 1] + (1 - correlation**2) ** 0.5 * centre[row]
    same = np.ones(blocks)
    return History(centre, centre + 0.001, 50 * same, 0.03 * same, 0.03 * same, 0.0 * same, centre, 25 * same)


def test_statistics_one_by_one_are_those_along_a_path() -> None:
    z = np.random.default_rng(1).standard_normal(200)
    sums = SumDetectors(CONFIG)
    single = np.array([sums.add(float(value), 0.5, 1e9) for value in z])
    along = [trace_window(z[None], CONFIG), trace_ewma(z[None], CONFIG), trace_cusum(z[None], 0.5)]
    for place, trace in enumerate(along):
        assert single[:, place] == pytest.approx(trace[0], abs=0.01)


def test_resampled_paths_keep_neighbours_together() -> None:
    rows = resample_rows(100, 20, np.random.default_rng(2))
    assert ((np.diff(rows, axis=1) % 100) == 1).mean() > 0.9
    assert rows.min() >= 0
    assert rows.max() < 100


def test_autocorrelated_blocks_get_wider_limits_for_sums() -> None:
    rng = np.random.default_rng(3)
    free = fit_limits(make_history(600, 4), CONFIG, rng)
    bound = fit_limits(make_history(600, 4, correlation=0.8), CONFIG, rng)
    assert bound.sums[0][2] > 1.5 * free.sums[0][2]


def test_few_blocks_get_wider_limits_than_many() -> None:
    rng = np.random.default_rng(5)
    few = np.mean([fit_limits(make_history(30, seed), CONFIG, rng).sums[0][0] for seed in range(10)])
    many = np.mean([fit_limits(make_history(900, seed), CONFIG, rng).sums[0][0] for seed in range(10)])
    assert few > many


def test_extrapolated_tail_of_normal_noise_is_beyond_the_true_quantile() -> None:
    trace = np.random.default_rng(6).standard_normal((64, 250))
    assert extrapolate_tail(trace, 1e6) > 4.75  # the normal quantile of 1 in 10^6


def test_step_limit_keeps_its_rate_on_new_normal_steps_with_heavy_tails() -> None:
    rng = np.random.default_rng(7)
    spread = np.full(8_000, 0.05)
    limits = fit_step_limits(0.04 * rng.standard_t(3, 8_000), spread, CONFIG)
    assert limits is not None
    flagger = StepFlagger(CONFIG)
    flagger.limits = limits
    fresh = 0.04 * rng.standard_t(3, 100_000)
    assert flagger.flag(fresh, np.full(100_000, 0.05), None).mean() <= 0.001


def test_too_few_steps_give_no_limit() -> None:
    assert fit_step_limits(np.zeros(50), np.full(50, 0.1), CONFIG) is None


def test_wider_doubt_of_the_model_needs_more_evidence() -> None:
    rng = np.random.default_rng(8)
    flagger = StepFlagger(CONFIG)
    flagger.limits = fit_step_limits(0.05 * rng.standard_normal(4_000), np.full(4_000, 0.05), CONFIG)
    assert flagger.flag(np.full(3, 0.3), np.full(3, 0.05), None)[-1] == 1
    other = StepFlagger(CONFIG)
    other.limits = flagger.limits
    assert not other.flag(np.full(3, 0.3), np.full(3, 0.3), None).any()


def test_flags_go_with_the_first_normal_step_after_a_large_shift() -> None:
    rng = np.random.default_rng(9)
    flagger = StepFlagger(CONFIG)
    flagger.limits = fit_step_limits(0.05 * rng.standard_normal(4_000), np.full(4_000, 0.05), CONFIG)
    residual = np.concatenate([np.full(20, 1.1), np.full(5, 0.0)])
    flags = flagger.flag(residual, np.full(25, 0.05), 1.1)
    assert flags[:20].sum() >= 18
    assert not flags[20:].any()
