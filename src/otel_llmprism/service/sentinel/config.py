# What a user may set about the sentinel. Values only.
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelConfig:
    """Expected time, control charts and findings from the ledgers that pass."""

    enabled: bool = True
    directory: str = ""  # models and open findings; empty: beside the log, nothing with durability memory
    max_engines: int = 200  # beyond that the one that was silent longest leaves
    queue_bytes: int = 64 << 20  # of ledgers that wait; what comes beyond is counted as lost
    slow_step_rate: float = 5.0  # spans of slow steps, a second and engine; ten times as many at once
    span_rate_bytes: int = 500_000  # a second, of all spans the sentinel makes
    deep_dive_steps: int = 20  # that a finding asks for; 0: never
    train_max_bytes: int = 2 << 30  # of the process that fits models
    train_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.max_engines < 1 or self.queue_bytes < 1 << 20 or self.train_timeout_s <= 0:
            raise ValueError("max_engines starts at 1, queue_bytes at 1MiB, train_timeout above 0")
        if min(self.slow_step_rate, self.span_rate_bytes, self.deep_dive_steps) < 0:
            raise ValueError("rates and deep_dive_steps must not be negative")
        if self.train_max_bytes < 256 << 20:
            raise ValueError("train_max_bytes starts at 256MiB")
