import math

import pytest

from otel_llmprism.testing.evaluation.intervals import bound_rate, bound_share, score_f1


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"), [(30, 30, 0.886, 1.0), (0, 30, 0.0, 0.114), (95, 100, 0.888, 0.978)]
)
def test_share_is_bounded_as_wilson_says(hits: int, of: int, low: float, high: float) -> None:
    assert bound_share(hits, of) == pytest.approx((low, high), abs=1e-3)


def test_nothing_counted_bounds_nothing() -> None:
    assert bound_share(0, 0) == (0.0, 1.0)
    assert math.isinf(bound_rate(0, 0.0))


@pytest.mark.parametrize(("events", "bound"), [(0, 2.996), (1, 4.744), (5, 10.513)])
def test_rate_of_rare_events_is_bounded_exactly(events: int, bound: float) -> None:
    assert bound_rate(events, 1.0) == pytest.approx(bound, abs=2e-3)
    assert bound_rate(events, 10.0) == pytest.approx(bound / 10, abs=2e-4)


def test_f1_counts_misses_and_false_flags_alike() -> None:
    assert score_f1(8, 2, 2) == pytest.approx(0.8)
    assert math.isnan(score_f1(0, 0, 0))
