# Stand-ins for what our hooks read of vLLM: a scheduler that plans, preempts and ends requests in the order
# of calls and with the attributes of release 0.33. And a run whose ring is a list.
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from otel_llmprism.instrumentation import process_run
from otel_llmprism.instrumentation.frameworks.vllm import core
from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.step_records import StepRecorder
from otel_llmprism.native.ring_dtypes import RING_DTYPES
from otel_llmprism.native.ring_records import Kind, Mode, derive_request_handle


class ListRing:
    def __init__(self) -> None:
        self.records: list[bytes] = []

    def add_hook_time(self, _duration_ns: int, /) -> None:
        pass

    def put(self, record: bytes, /) -> bool:
        self.records.append(record)
        return True


class PretendRun:
    """What the hooks use of an EngineRun, with what they recorded to look at."""

    def __init__(self) -> None:
        self.ring = ListRing()
        self.description = None
        self.absent: list[str] = []
        self.steps = StepRecorder(self.ring, StepKeeper("engine", bytes(16), "all"), Mode.SENTINEL)
        self.requests = RequestRecorder(self.ring, build_sampler({}), reads_context=True)

    def build_rank_recorder(self, place: RankPlace) -> RankRecorder:
        return RankRecorder(self.ring, place)

    def note_absent(self, hook: str) -> None:
        self.absent.append(hook)

    def list_rows(self, kind: Kind) -> list[Any]:
        """Return all slots of a kind, as numpy reads them."""
        slots = [record[at : at + 128] for record in self.ring.records for at in range(0, len(record), 128)]
        return [np.frombuffer(slot, np.dtype(RING_DTYPES[kind]))[0] for slot in slots if slot[0] == kind]

    def list_events(self, request_id: str) -> list[tuple[int, int]]:
        """Return (event, tokens) of one request, in order."""
        handle = derive_request_handle(request_id)
        rows = self.list_rows(Kind.REQUEST_EVENT)
        return [(int(row["event"]), int(row["tokens"])) for row in rows if row["handle"] == handle]


Status = IntEnum(
    "Status",
    ["WAITING", "RUNNING", "PREEMPTED", "FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED", "FINISHED_ABORTED"],
)


@dataclass(eq=False)
class Request:
    request_id: str
    num_prompt_tokens: int
    trace_headers: dict[str, str] | None = None
    num_computed_tokens: int = 0
    num_output_tokens: int = 0
    status: Status = Status.WAITING


@dataclass
class CachedRequests:
    req_ids: list[str] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)


@dataclass
class Output:
    num_scheduled_tokens: dict[str, int]
    scheduled_new_reqs: list[Any] = field(default_factory=list)
    scheduled_cached_reqs: CachedRequests = field(default_factory=CachedRequests)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())


def make_config(**changes: Any) -> Any:
    parallel = {"pipeline_parallel_size": 1, "data_parallel_size": 1, "world_size": 1, **changes}
    return SimpleNamespace(
        parallel_config=SimpleNamespace(**parallel),
        observability_config=SimpleNamespace(otlp_traces_endpoint=None),
        model_config=SimpleNamespace(served_model_name="tiny", runner_type="generate"),
    )


class Scheduler:
    """`plan` says what the next schedule() gives to whom; the rest follows as in vLLM."""

    def __init__(self, **changes: Any) -> None:
        self.vllm_config = make_config(**changes)
        self.kv_cache_manager = SimpleNamespace(usage=0.25)
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.plan: dict[str, int] = {}
        self.victims: list[str] = []
        self.failure: Exception | None = None

    def get_request_counts(self) -> tuple[int, int]:
        return len(self.running), len(self.waiting)

    def add_request(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def schedule(self) -> Output:
        for name in self.victims:
            self._preempt_request(self.requests[name], 0.0)
        self.victims = []
        output = Output(dict(self.plan))
        for name, count in self.plan.items():
            self._take(output, self.requests[name], count)
        return output

    def update_from_output(self, scheduler_output: Output, model_runner_output: dict[str, bool]) -> str:
        if self.failure is not None:
            raise self.failure
        for name, ends in model_runner_output.items():
            request = self.requests[name]
            request.num_output_tokens += 1
            if ends:
                request.status = Status.FINISHED_LENGTH_CAPPED
                self._free_request(request)
        return f"outputs of {len(scheduler_output.num_scheduled_tokens)}"

    def _take(self, output: Output, request: Request, count: int) -> None:
        cached = output.scheduled_cached_reqs
        if request.status is Status.WAITING:
            new = SimpleNamespace(req_id=request.request_id, num_computed_tokens=request.num_computed_tokens)
            output.scheduled_new_reqs.append(new)
        else:
            cached.req_ids.append(request.request_id)
            cached.num_computed_tokens.append(request.num_computed_tokens)
        if request.status is Status.PREEMPTED:
            cached.resumed_req_ids.add(request.request_id)
        if request in self.waiting:
            self.waiting.remove(request)
            self.running.append(request)
        request.status = Status.RUNNING
        request.num_computed_tokens += count

    def _preempt_request(self, request: Request, _timestamp: float) -> None:
        request.status, request.num_computed_tokens = Status.PREEMPTED, 0
        self.running.remove(request)
        self.waiting.append(request)

    def _free_request(self, request: Request, _delay_free_blocks: bool = False) -> None:
        if request in self.running:
            self.running.remove(request)
        del self.requests[request.request_id]


WRAPS = {
    "add_request": core.wrap_add_request,
    "schedule": core.wrap_schedule,
    "update_from_output": core.wrap_update_from_output,
    "_preempt_request": core.wrap_preempt_request,
    "_free_request": core.wrap_free_request,
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> PretendRun:
    """Return the run of this process."""
    pretend = PretendRun()
    monkeypatch.setattr(process_run, "_run", pretend)
    monkeypatch.setattr(process_run, "_absent", {})
    return pretend


@pytest.fixture
def vllm() -> Any:
    """Offer the stand-ins; `Scheduler` is hooked."""
    hooked = {name: wrap(vars(Scheduler)[name]) for name, wrap in WRAPS.items()}
    return SimpleNamespace(
        Scheduler=type("Scheduler", (Scheduler,), hooked),
        PlainScheduler=Scheduler,
        Request=Request,
        Output=Output,
        CachedRequests=CachedRequests,
        Status=Status,
        make_config=make_config,
    )
