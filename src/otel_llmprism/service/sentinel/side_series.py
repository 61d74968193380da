# Gaps, queueing and unexplained time as log ratios of observed to usual, each against the time of the work
# itself, so that 0.69 means: everything took twice as long because of it. What is usual is learned slowly.
import numpy as np
import numpy.typing as npt

from otel_llmprism.model.charts import Series
from otel_llmprism.model.steps import F64, U64, UNKNOWN, StepTable
from otel_llmprism.model.work import ScoredTable
from otel_llmprism.service.sentinel.request_watch import EndedOne
from otel_llmprism.service.sentinel.slow_median import SlowMedian
from otel_llmprism.service.sentinel.work import Rows

_NS_PER_S = 1e9
_LEAST_S = 1e-3  # of the time that a delay is held against


class SeriesPoints:
    """Times, log ratios and weights (seconds of work) of one series."""

    def __init__(self, series: Series, time_ns: U64, log_ratio: F64, weight: F64) -> None:
        fine = np.isfinite(log_ratio)
        self.series = series
        self.time_ns, self.log_ratio, self.weight = time_ns[fine], log_ratio[fine], weight[fine]

    def __len__(self) -> int:
        return len(self.time_ns)


class SideSeries:
    """Of one engine and run; learns only while told to."""

    def __init__(self, seed: int) -> None:
        self._gap = SlowMedian(seed)
        self._queue = SlowMedian(seed + 1)
        self._service = SlowMedian(seed + 2)
        self._unexplained = SlowMedian(seed + 3)  # per step

    def chart_gaps(self, steps: StepTable, rows: Rows, scored: ScoredTable, *, learns: bool) -> SeriesPoints:
        """Compare each step with the gap before it; where nothing is expected, with its own cycle."""
        gap = steps.gap_ns[rows]
        is_known = (gap != UNKNOWN) & (gap < np.uint64(3_600_000_000_000))
        gap_s = gap[is_known].astype(np.float64) / _NS_PER_S
        work_ns = np.where(np.isfinite(scored.expected_ns), scored.expected_ns, scored.cycle_ns)[is_known]
        work_s = np.maximum(work_ns / _NS_PER_S, 1e-6)
        usual = self._gap.read()
        if learns:
            self._gap.add(gap_s)
        ratio = np.log((gap_s + work_s) / (usual + work_s))
        return SeriesPoints(Series.GAP, scored.time_ns[is_known], ratio, work_s)

    def chart_queues(self, time_ns: U64, queue_s: F64, *, learns: bool) -> SeriesPoints:
        usual, service = self._queue.read(), max(self._service.read(), _LEAST_S)
        if learns:
            self._queue.add(queue_s)
        ratio = np.log((queue_s + service) / (usual + service))
        return SeriesPoints(Series.QUEUE, time_ns, ratio, np.full(len(queue_s), service))

    def chart_unexplained(self, ended: list[EndedOne], *, learns: bool) -> SeriesPoints:
        rows = [(one, one.unexplained_s) for one in ended]
        told = [(one, left_s) for one, left_s in rows if left_s is not None]
        left_s = np.array([left for _, left in told], dtype=np.float64)
        steps = np.array([_count_steps(one) for one, _ in told], dtype=np.float64)
        own_s = np.array([one.total_s - one.queue_s for one, _ in told], dtype=np.float64) - left_s
        own_s = np.maximum(own_s, _LEAST_S)
        ends = np.array([one.life.ended_ns for one, _ in told], dtype=np.uint64)
        usual = self._unexplained.read() * steps
        if learns:
            self._unexplained.add(left_s / steps)
            self._service.add(own_s)
        ratio: npt.NDArray[np.float64] = np.log((left_s + own_s) / (usual + own_s))
        return SeriesPoints(Series.UNEXPLAINED, ends, ratio, own_s)

    def dump(self) -> dict[str, object]:
        return {
            "gap": self._gap.dump(),
            "queue": self._queue.dump(),
            "service": self._service.dump(),
            "unexplained": self._unexplained.dump(),
        }

    def load(self, state: object) -> None:
        """Take a dump over; what is damaged is learned again."""
        if isinstance(state, dict):
            self._gap.load(state.get("gap"))
            self._queue.load(state.get("queue"))
            self._service.load(state.get("service"))
            self._unexplained.load(state.get("unexplained"))


def _count_steps(one: EndedOne) -> int:
    return max(1, one.life.end.steps if one.life.end is not None else one.life.steps)
