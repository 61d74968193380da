# CLOCK_MONOTONIC columns -> real time by an anchor, as signed numbers; what cannot be a time becomes 0.
import numpy as np

from otel_llmprism.diagnose.facts.bins import I64
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.steps import U64

MAX_TIME_NS = 1 << 62  # 2116


def to_real_ns(time_ns: U64, anchor: Anchor) -> I64:
    """Return real times; 0 where the time is unknown or absurd."""
    is_time = time_ns < MAX_TIME_NS
    real = np.where(is_time, time_ns, 0).astype(np.int64) + (anchor.realtime_ns - anchor.monotonic_ns)
    return np.where(is_time & (real > 0) & (real < MAX_TIME_NS), real, 0)


def to_real(time_ns: int, anchor: Anchor) -> int:
    """Return one real time; 0 for 0."""
    return time_ns + anchor.realtime_ns - anchor.monotonic_ns if 0 < time_ns < MAX_TIME_NS else 0
