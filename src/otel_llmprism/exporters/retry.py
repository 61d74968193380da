# When to try again: exponential backoff with jitter. Pure: randomness comes in, seconds go out.
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    initial_interval_s: float = 0.5
    max_interval_s: float = 30.0
    multiplier: float = 2.0
    # A server that asks for a year of patience would park the data behind it for as long.
    max_retry_after_s: float = 600.0

    def __post_init__(self) -> None:
        """Refuse intervals that would spin or shrink."""
        if not 0 < self.initial_interval_s <= self.max_interval_s:
            raise ValueError("retry: initial_interval must be above 0 and at most max_interval")
        if self.multiplier < 1:
            raise ValueError("retry: multiplier must be at least 1")


class Backoff:
    """The waits of one request; `random` gives values in [0, 1)."""

    def __init__(self, config: RetryConfig, random: Callable[[], float]) -> None:
        self._config = config
        self._random = random
        self._interval_s = config.initial_interval_s

    def choose_delay(self, retry_after_s: float | None) -> float:
        """Return the seconds to wait: between half and all of an interval that grows with each call.

        A delay that the server asked for is a lower limit, kept up to `max_retry_after_s`; the jitter on
        top spreads clients that were all told the same.
        """
        interval_s = self._interval_s
        self._interval_s = min(interval_s * self._config.multiplier, self._config.max_interval_s)
        delay_s = interval_s * (0.5 + 0.5 * self._random())
        if retry_after_s is None:
            return delay_s
        asked_s = min(retry_after_s, self._config.max_retry_after_s)
        return max(delay_s, asked_s + 0.5 * self._config.initial_interval_s * self._random())
