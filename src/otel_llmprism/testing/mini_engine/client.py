# The caller's side, in a process of its own: seeded load on the engine, one real OpenTelemetry CLIENT
# span per request when the SDK is installed, its W3C context handed to the engine.
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from otel_llmprism.testing.mini_engine.client_spans import ClientSpan, build_client_tracing
from otel_llmprism.testing.mini_engine.fault_injector import FaultPlan
from otel_llmprism.testing.mini_engine.fault_schedule import Place
from otel_llmprism.testing.mini_engine.messages import (
    Cancel,
    Close,
    Done,
    Submit,
    receive_message,
    send_message,
)
from otel_llmprism.testing.mini_engine.settings import LoadConfig

_WORDS = ("red", "blue", "slow", "fast", "node", "link", "rank", "step")


@dataclass(frozen=True, slots=True)
class Job:
    """One request to make; `due_s` after the start (open loop), cancelled `cancel_s` after it was sent."""

    request_id: str
    prompt: str
    max_tokens: int
    due_s: float
    cancel_s: float | None


def draw_jobs(load: LoadConfig, read_rush: Callable[[float], float] = lambda _due_s: 1.0) -> Iterator[Job]:
    """Yield the load in order of arrival: equal settings give equal jobs.

    `read_rush`: how many times faster they come at a time.
    """
    seeded = random.Random(load.seed)  # noqa: S311  a load, not a secret
    due_s, number = 0.0, 0
    while number < load.requests or load.seconds:
        due_s += seeded.expovariate(load.rate_per_s * read_rush(due_s))
        words = max(1, round(seeded.gauss(load.prompt_tokens, load.prompt_tokens / 4)) // 2)
        prompt = " ".join(seeded.choice(_WORDS) for _ in range(words))
        yield Job(
            request_id=f"req-{number}",
            prompt=f"{load.canary_prompt} {prompt}".strip(),
            max_tokens=max(1, round(seeded.expovariate(1 / load.output_tokens))),
            due_s=0.0 if load.closed else due_s,
            cancel_s=seeded.uniform(0, 0.2) if seeded.random() < load.cancel_share else None,
        )
        number += 1


def run_client(pipe: Connection, load: LoadConfig, faults: FaultPlan | None = None) -> None:
    """Send the whole load, wait for every answer, end every span; stop early when the engine is gone."""
    tracing = build_client_tracing(load.sampled_share)
    try:
        _Caller(pipe, load, faults or FaultPlan(), tracing.begin_span).run()
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass  # the engine is gone or the user stopped us: nothing is left to ask
    finally:
        tracing.close()


class _Caller:
    def __init__(
        self,
        pipe: Connection,
        load: LoadConfig,
        faults: FaultPlan,
        begin_span: Callable[[str], ClientSpan],
    ) -> None:
        self._pipe = pipe
        self._load = load
        self._faults = faults
        self._begin_span = begin_span
        self._open: dict[str, ClientSpan] = {}
        self._cancels: list[tuple[float, str]] = []
        self._began_s = time.monotonic()

    def run(self) -> None:
        jobs = draw_jobs(self._load, self._read_rush)
        upcoming = next(jobs, None)
        while upcoming is not None and not self._is_over():
            if self._may_send(upcoming):
                self._submit(upcoming)
                upcoming = next(jobs, None)
            else:
                self._wait(self._began_s + upcoming.due_s)
        send_message(self._pipe, Close())
        while self._open:
            self._wait(time.monotonic() + 1.0)

    def _read_rush(self, due_s: float) -> float:
        entry = self._faults.find_entry(Place.LOAD, int((self._began_s + due_s) * 1e9))
        return entry.intensity if entry else 1.0

    def _is_over(self) -> bool:
        return bool(self._load.seconds) and time.monotonic() - self._began_s >= self._load.seconds

    def _may_send(self, job: Job) -> bool:
        if self._load.closed:
            return len(self._open) < self._load.closed
        return time.monotonic() - self._began_s >= job.due_s

    def _submit(self, job: Job) -> None:
        span = self._begin_span(job.request_id)
        self._open[job.request_id] = span
        send_message(self._pipe, Submit(job.request_id, job.prompt, job.max_tokens, span.traceparent))
        if job.cancel_s is not None:
            self._cancels.append((time.monotonic() + job.cancel_s, job.request_id))

    def _wait(self, until_s: float) -> None:
        """Take answers and send due cancels until `until_s`, or until an answer came."""
        due_s = min([until_s, *(at for at, _ in self._cancels)])
        if self._load.closed and due_s < time.monotonic():
            due_s = time.monotonic() + 0.05
        if self._pipe.poll(max(0.0, due_s - time.monotonic())):
            answer = receive_message(self._pipe)
            if isinstance(answer, Done):
                self._open.pop(answer.request_id).end(answer.finish_reason)
        now = time.monotonic()
        for at, request_id in [item for item in self._cancels if item[0] <= now]:
            self._cancels.remove((at, request_id))
            if request_id in self._open:
                send_message(self._pipe, Cancel(request_id))
