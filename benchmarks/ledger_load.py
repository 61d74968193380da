# The load of the ledger's figures: 8 ranks, batch 256, 100 steps/s, answers of 200 tokens (so 1.28 requests
# join a step), chunked prefill, noise in every time. Writes ring records; nothing here is measured.
import random
from collections.abc import Iterator
from dataclasses import dataclass

from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_records import (
    Finish,
    GraphMode,
    Mode,
    RequestEvent,
    StepKind,
    derive_request_handle,
    pack_request_arrived,
    pack_request_ended,
    pack_request_event,
    pack_step_output,
    pack_step_rank,
    pack_step_scheduled,
)

RANKS, BATCH, STEPS_PER_S, OUTPUT_TOKENS, CHUNK_TOKENS = 8, 256, 100, 200, 2048


@dataclass
class Request:
    name: str
    prompt_left: int
    output_left: int
    prompt_tokens: int
    steps: int = 0


class Load:
    """Yields each step's records; keeps its own book of who got how many tokens."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)  # noqa: S311  a load, no secret
        self.running: list[Request] = []
        self.set: RunningSet[str] = RunningSet(derive_request_handle)
        self.booked: dict[str, tuple[int, int, int]] = {}  # steps, prompt tokens, output tokens
        self.ids: dict[str, str] = {}
        self.now_ns = 10**15

    def run(self, steps: int) -> Iterator[list[bytes]]:
        for step in range(steps):
            yield list(self._make_step(step))

    def _make_step(self, step: int) -> Iterator[bytes]:
        noise = self.random
        self.now_ns += int(1e9 / STEPS_PER_S * noise.lognormvariate(0, 0.15))
        start = self.now_ns
        yield from self._admit(start)
        tokens, prefill = self._schedule()
        members = self.set.diff(tokens, prefill)
        prefill_tokens = sum(tokens[name] for name in prefill)
        kind = StepKind.MIXED if prefill else StepKind.DECODE
        end = start + int(3e5 * noise.lognormvariate(0, 0.3))
        kv_tokens = sum(r.prompt_tokens - r.prompt_left + OUTPUT_TOKENS - r.output_left for r in self.running)
        yield pack_step_scheduled(
            step, start, end, kind, noise.random() < 0.01, 1 / noise.randint(97, 103), len(tokens),
            prefill_tokens, sum(tokens.values()) - prefill_tokens, kv_tokens, noise.randint(0, 12),
            len(self.running), 0, kv_tokens / 1e6, GraphMode.FULL, Mode.SENTINEL, members,
        )  # fmt: skip
        device = int(8e6 * noise.lognormvariate(0, 0.1))
        slowest = 0
        for rank in range(RANKS):
            begin = end + int(1e5 * noise.lognormvariate(0, 0.5))
            own = device + int(2e5 * noise.lognormvariate(0, 0.5))
            wait = int(4e5 * noise.lognormvariate(0, 0.8))
            slowest = max(slowest, begin + own)
            yield pack_step_rank(step, rank, begin, begin + own, device, wait, tp=rank)
        ready = slowest + int(5e4 * noise.lognormvariate(0, 0.5))
        durations = (
            device + 400_000,
            int(3e5 * noise.lognormvariate(0, 0.3)),
            int(2e5 * noise.lognormvariate(0, 0.3)),
        )
        yield from self._book(step, tokens, prefill, ready)
        yield pack_step_output(step, ready, *durations)

    def _admit(self, now_ns: int) -> Iterator[bytes]:
        noise = self.random
        while len(self.running) < BATCH and (noise.random() < 0.8 or len(self.running) < BATCH - 8):
            external = f"chatcmpl-{noise.randbytes(16).hex()}"
            name = f"{external}-{noise.randbytes(4).hex()}"
            prompt = int(noise.lognormvariate(6, 0.8)) + 8
            left = OUTPUT_TOKENS + noise.randint(-20, 20)
            if len(self.booked) < BATCH:  # at the start everybody is somewhere in its answer
                left = noise.randint(1, OUTPUT_TOKENS)
            self.running.append(Request(name, prompt, left, prompt))
            self.booked[name] = (0, 0, 0)
            self.ids[name] = external
            handle = derive_request_handle(name)
            arrived = now_ns - int(2e7 * noise.lognormvariate(0, 0.5))
            yield pack_request_arrived(
                handle, arrived, noise.randbytes(16), noise.randbytes(8), noise.randbytes(8), name, external,
                sampled=True, has_remote_parent=True,
            )  # fmt: skip
            yield pack_request_event(
                handle, arrived + 200_000 + noise.randint(0, 50_000), RequestEvent.QUEUED
            )

    def _schedule(self) -> tuple[dict[str, int], set[str]]:
        tokens, prefill, budget = {}, set(), CHUNK_TOKENS
        for request in self.running:
            if not request.prompt_left:
                tokens[request.name] = 1
            elif budget:
                tokens[request.name] = min(budget, request.prompt_left)
                budget -= tokens[request.name]
                prefill.add(request.name)
        return tokens, prefill

    def _book(self, step: int, tokens: dict[str, int], prefill: set[str], ready_ns: int) -> Iterator[bytes]:
        done = []
        for request in self.running:
            count = tokens.get(request.name, 0)
            if not count:
                continue
            handle = derive_request_handle(request.name) if request.name in prefill else 0
            if handle and request.steps == 0:
                yield pack_request_event(handle, ready_ns - 9_000_000, RequestEvent.SCHEDULED, step)
            request.steps += 1
            steps, prompt, output = self.booked[request.name]
            if request.name in prefill:
                request.prompt_left -= count
                prompt += count
                if not request.prompt_left:
                    yield pack_request_event(handle, ready_ns, RequestEvent.FIRST_TOKEN, step, 1)
            else:
                output += count
                request.output_left -= count
            self.booked[request.name] = (steps + 1, prompt, output)
            if not request.prompt_left and request.output_left <= 0:
                done.append(request)
        for request in done:
            self.running.remove(request)
            self.set.leave([request.name])
            yield pack_request_ended(
                derive_request_handle(request.name), ready_ns + 30_000, request.prompt_tokens,
                OUTPUT_TOKENS, 0, request.steps, 0, Finish.STOP,
            )  # fmt: skip
