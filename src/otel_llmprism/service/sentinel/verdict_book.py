# What is to be appended to spans that the exporter sends: by step trace, and by request. The sentinel writes,
# the pipeline thread reads. Bounded; the oldest leave.
import threading
from collections import OrderedDict
from dataclasses import dataclass

MAX_ENTRIES = 50_000


@dataclass(frozen=True, slots=True)
class StepVerdict:
    expected_s: float
    residual: float
    is_anomalous: bool


@dataclass(frozen=True, slots=True)
class RequestAddition:
    slow_steps: int
    unexplained_s: float | None
    finding_id: str
    slow_traces: tuple[tuple[bytes, bytes, int], ...]  # trace id, span id, step of the slow steps it was in


class VerdictBook:
    """Thread-safe."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._steps: OrderedDict[bytes, StepVerdict] = OrderedDict()
        self._requests: OrderedDict[bytes, RequestAddition] = OrderedDict()

    def note_step(self, trace_id: bytes, verdict: StepVerdict) -> None:
        with self._lock:
            self._steps[trace_id] = verdict
            if len(self._steps) > self._max_entries:
                self._steps.popitem(last=False)

    def note_request(self, trace_id: bytes, span_id: bytes, addition: RequestAddition) -> None:
        with self._lock:
            self._requests[trace_id + span_id] = addition
            if len(self._requests) > self._max_entries:
                self._requests.popitem(last=False)

    def find_step(self, trace_id: bytes) -> StepVerdict | None:
        with self._lock:
            return self._steps.get(trace_id)

    def find_request(self, trace_id: bytes, span_id: bytes) -> RequestAddition | None:
        with self._lock:
            return self._requests.get(trace_id + span_id)
