# What a control chart says at the end of a block: small frozen values between baseline and diagnose.
from dataclasses import dataclass
from enum import StrEnum


class Series(StrEnum):
    """What is charted; each is a log ratio of observed to expected, so 0 is as expected and 0.69 twice."""

    CYCLE = "cycle"  # of steps, by kind
    GAP = "gap"  # between steps while work waited, against busy time
    QUEUE = "queue"  # of requests that were scheduled
    UNEXPLAINED = "unexplained"  # of ended requests: end to end - queue - sum of cycles


class Detector(StrEnum):
    POINT = "point"
    WINDOW = "window"
    EWMA = "ewma"
    CUSUM = "cusum"


@dataclass(frozen=True, slots=True)
class ChartKey:
    """One chart; `kind` is a code of native.ring_codes.StepKind, 0 where the series has no kinds."""

    engine_id: str
    series: Series
    kind: int = 0


@dataclass(frozen=True, slots=True)
class ChartReading:
    """One block of one chart. Times are those of the data that went in (CLOCK_MONOTONIC of the node)."""

    key: ChartKey
    begin_ns: int
    end_ns: int
    count: int  # of steps or requests in the block
    level: float  # robust centre of the block's log ratios
    score: float  # the leading statistic over its limit: above 1 is an alarm; 0 before the chart has limits
    detector: Detector  # the one that leads
    is_alarm: bool
    onset_ns: int  # when the shift that is alarmed on began, estimated; 0 without an alarm
    shift: float  # robust centre of the log ratios since then
    upper_limit: float  # of `level` in a block of this size; NaN before the chart has limits
    is_recovered: bool = False  # first block back within limits after an alarm
    regime: int = 0  # counts up with every regime change (new load, restart); limits belong to one
