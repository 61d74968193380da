# The waits between attempts, with chosen randomness.
import pytest

from otel_llmprism.exporters.retry import Backoff, RetryConfig

CONFIG = RetryConfig(initial_interval_s=1.0, max_interval_s=5.0, multiplier=2.0, max_retry_after_s=60.0)


def test_waits_grow_to_the_limit() -> None:
    backoff = Backoff(CONFIG, random=lambda: 1.0)
    assert [backoff.choose_delay(None) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_jitter_takes_at_most_half_away() -> None:
    backoff = Backoff(CONFIG, random=lambda: 0.0)
    assert [backoff.choose_delay(None) for _ in range(4)] == [0.5, 1.0, 2.0, 2.5]


def test_server_is_never_asked_earlier_than_it_said() -> None:
    assert Backoff(CONFIG, random=lambda: 0.0).choose_delay(7.0) == 7.0
    assert Backoff(CONFIG, random=lambda: 1.0).choose_delay(7.0) == 7.5
    assert Backoff(CONFIG, random=lambda: 1.0).choose_delay(0.0) == 1.0


def test_absurd_delay_is_bounded() -> None:
    assert Backoff(CONFIG, random=lambda: 0.0).choose_delay(1e9) == 60.0


@pytest.mark.parametrize(
    "bad", [{"initial_interval_s": 0.0}, {"initial_interval_s": 40.0}, {"multiplier": 0.5}]
)
def test_intervals_that_would_spin_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="retry:"):
        RetryConfig(**bad)
