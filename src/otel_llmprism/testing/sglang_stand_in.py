# A stand-in for SGLang's scheduler process: the classes, attributes and loops that our hooks meet, shaped
# after its published sources (0.5.23, and 0.5.5 where that differs), with no model. What each request was
# given is kept in `given`, independent of what is recorded. No part of SGLang is in it.
from collections import deque
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import SimpleNamespace
from typing import Any


class ForwardMode(IntEnum):
    EXTEND = 1
    DECODE = 2
    MIXED = 3
    IDLE = 4


class FINISH_LENGTH:  # noqa: N801  its name is what is read
    def __init__(self, length: int) -> None:
        self.length = length


class FINISH_ABORT:  # noqa: N801
    def __init__(self, message: str, status_code: int | None = None) -> None:
        self.message = message
        self.status_code = status_code


@dataclass(eq=False)
class Req:
    rid: str
    origin_input_ids: list[int]
    max_new_tokens: int
    cached: int = 0  # a prefix that the cache has
    output_ids: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    computed: int = 0
    finished_reason: Any = None
    to_finish: Any = None
    retraction_count: int = 0

    @property
    def fill_length(self) -> int:
        return len(self.origin_input_ids) + len(self.output_ids)


@dataclass(eq=False)
class ScheduleBatch:
    reqs: list[Req]
    forward_mode: ForwardMode
    extend_lens: list[int] | None = None
    prefix_lens: list[int] | None = None
    decoding_reqs: list[Req] | None = None
    seq_lens_sum: int | None = None

    def copy(self) -> "ScheduleBatch":
        return replace(self, reqs=self.reqs[:])


@dataclass(eq=False)
class NumberedBatch(ScheduleBatch):
    """As of 0.5.2x: a batch knows which forward pass it is."""

    forward_iter: int | None = None


@dataclass
class NextBatchPlan:
    batch_to_run: ScheduleBatch | None


class TpModelWorker:
    def forward_batch_generation(self, batch: Any) -> Any:
        return SimpleNamespace(batch=batch)


class Scheduler:
    """One rank; `room` tokens of cache, prompts in chunks of `chunk`, at most `room` tokens in all."""

    batch_class: type[ScheduleBatch] = NumberedBatch

    def __init__(
        self, room: int = 1 << 20, chunk: int = 1 << 20, *, is_mixed: bool = False, **ranks: int
    ) -> None:
        self.server_args = SimpleNamespace(tp_size=2, pp_size=1, dp_size=1, model_path="tiny")
        self.tp_rank, self.pp_rank, self.attn_tp_rank = ranks.get("tp_rank", 0), 0, ranks.get("tp_rank", 0)
        self.tp_worker = TpModelWorker()
        self.forward_ct = 0
        self.waiting_queue: list[Req] = []
        self.running_batch = ScheduleBatch([], ForwardMode.DECODE)
        self.last_batch: ScheduleBatch | None = None
        self.result_queue: deque[tuple[ScheduleBatch, Any]] = deque()
        self.max_queued_requests: int | None = None
        self.max_total_num_tokens = room
        self.given: dict[str, list[int]] = {}  # tokens a step
        self.turned_away: list[str] = []
        self._chunk, self._is_mixed = chunk, is_mixed
        self._chunked: Req | None = None

    def handle_generate_request(self, recv_req: Any) -> None:
        req = Req(recv_req.rid, recv_req.input_ids, recv_req.max_new_tokens, recv_req.cached)
        self._add_request_to_queue(req)

    def _add_request_to_queue(self, req: Req, is_retracted: bool = False) -> None:
        if not is_retracted and self._abort_on_queued_limit(req):
            return
        self.waiting_queue.append(req)

    def _abort_on_queued_limit(self, recv_req: Req) -> bool:
        if self.max_queued_requests is None or len(self.waiting_queue) < self.max_queued_requests:
            return False
        self.turned_away.append(recv_req.rid)
        return True

    def abort_request(self, recv_req: Any) -> None:
        self.waiting_queue = [req for req in self.waiting_queue if req.rid != recv_req.rid]
        for req in self.running_batch.reqs:
            if req.rid == recv_req.rid:
                req.to_finish = FINISH_ABORT("aborted")

    def is_fully_idle(self) -> bool:
        return not self.waiting_queue and not self.running_batch.reqs and not self.result_queue

    def get_next_batch_to_run(self, running_batch: Any = None, last_batch: Any = None) -> Any:  # noqa: ARG002
        return NextBatchPlan(self._find_batch())

    def _find_batch(self) -> ScheduleBatch | None:
        running = self.running_batch
        running.reqs = [req for req in running.reqs if req.finished_reason is None]
        prefill = self._build_prefill()
        if prefill is not None:
            return prefill
        self._retract_beyond_room()
        if not running.reqs:
            return None
        total = sum(req.fill_length for req in running.reqs)
        return self.batch_class(running.reqs[:], ForwardMode.DECODE, seq_lens_sum=total)

    def _build_prefill(self) -> ScheduleBatch | None:
        taken, lengths, prefixes, room = [], [], [], self._chunk
        if self._chunked is not None and self._chunked.finished_reason is None:
            self.waiting_queue.insert(0, self._chunked)
        self._chunked = None
        used = sum(req.fill_length for req in self.running_batch.reqs)
        while (
            self.waiting_queue
            and room
            and used + self.waiting_queue[0].fill_length < self.max_total_num_tokens
        ):
            req = self.waiting_queue.pop(0)
            if not req.computed:
                req.computed = req.cached
                req.cached_tokens = req.cached_tokens or req.cached
            length = min(req.fill_length - req.computed, room)
            taken.append(req)
            lengths.append(length)
            prefixes.append(req.computed)
            req.computed += length
            room -= length
            used += req.fill_length
            if req.computed < req.fill_length:
                self._chunked = req
        if not taken:
            return None
        decoding = self.running_batch.reqs[:] if self._is_mixed else []
        mode = ForwardMode.MIXED if decoding else ForwardMode.EXTEND
        batch = self.batch_class(
            taken + decoding,
            mode,
            lengths + [1] * len(decoding),
            prefixes + [req.fill_length - 1 for req in decoding],
            decoding or None,
        )
        self.running_batch.reqs += [req for req in taken if req is not self._chunked]
        return batch

    def _retract_beyond_room(self) -> None:
        running = self.running_batch.reqs
        while len(running) > 1 and sum(req.fill_length + 1 for req in running) > self.max_total_num_tokens:
            req = running.pop()
            req.computed = 0
            req.retraction_count += 1
            self._add_request_to_queue(req, is_retracted=True)

    def run_batch(self, batch: Any) -> Any:
        self.forward_ct += 1
        if isinstance(batch, NumberedBatch):
            batch.forward_iter = self.forward_ct
        if batch.forward_mode is ForwardMode.IDLE:
            return SimpleNamespace(batch=batch)
        lengths = batch.extend_lens or [1] * len(batch.reqs)
        for req, length in zip(batch.reqs, lengths, strict=True):
            self.given.setdefault(req.rid, []).append(length)
        return self.tp_worker.forward_batch_generation(batch)

    def process_batch_result(self, batch: Any, result: Any) -> None:  # noqa: ARG002
        for req in batch.reqs:
            if req.finished_reason is not None or req is self._chunked or not req.computed:
                continue  # done by now, not whole yet, or retracted
            req.output_ids.append(7)
            req.computed = max(req.computed, req.fill_length - 1)
            if req.to_finish is not None:
                req.finished_reason = req.to_finish
            elif len(req.output_ids) >= req.max_new_tokens:
                req.finished_reason = FINISH_LENGTH(len(req.output_ids))


class EarlierScheduler(Scheduler):
    """As of 0.5.5: batches have no number, and a plan is the batch itself."""

    batch_class = ScheduleBatch

    def get_next_batch_to_run(self, running_batch: Any = None, last_batch: Any = None) -> Any:  # noqa: ARG002
        return self._find_batch()


def run_normal(scheduler: Scheduler) -> None:
    """Loop until nothing is left, each result taken in at once."""
    while True:
        batch = plan_batch(scheduler)
        if batch is None:
            return
        scheduler.process_batch_result(batch, scheduler.run_batch(batch))
        scheduler.last_batch = batch


def run_overlapped(scheduler: Scheduler) -> None:
    """Loop until nothing is left, each result taken in after the next launch."""
    while True:
        batch = plan_batch(scheduler)
        if batch is not None:
            scheduler.result_queue.append((batch.copy(), scheduler.run_batch(batch)))
        if scheduler.last_batch is not None:
            scheduler.process_batch_result(*scheduler.result_queue.popleft())
        elif batch is None:
            return
        scheduler.last_batch = batch


def plan_batch(scheduler: Scheduler) -> ScheduleBatch | None:
    """Ask for the next batch, as the loops do."""
    plan = scheduler.get_next_batch_to_run(
        running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
    )
    return plan.batch_to_run if isinstance(plan, NextBatchPlan) else plan
