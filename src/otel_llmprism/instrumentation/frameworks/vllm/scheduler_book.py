# What we keep beside vLLM's scheduler, and the records of its steps. It reads what the scheduler has just
# decided, never a token; nothing in it grows with the batch but a sum.
import time
from typing import Any

from otel_llmprism.instrumentation.engine_run import EngineRun
from otel_llmprism.instrumentation.frameworks.vllm.request_book import RequestBook
from otel_llmprism.instrumentation.keeping import StepTicket
from otel_llmprism.instrumentation.step_lane import LentSteps, open_lane
from otel_llmprism.instrumentation.step_records import EngineState
from otel_llmprism.native.ring_records import UNKNOWN_NS

# A plain tuple: the worker that unpickles it may not have this package.
TICKET_ATTRIBUTE = "_llmprism_ticket"
HOST_TIMES_ATTRIBUTE = "_llmprism_host_ns"  # (execute, sample), where the worker lives in this process


class SchedulerBook:
    """What we keep beside one scheduler; called by its thread alone."""

    def __init__(self, scheduler: Any, run: EngineRun) -> None:
        config = scheduler.vllm_config
        endpoint = getattr(config.observability_config, "otlp_traces_endpoint", None)
        self.requests = RequestBook(run.requests, lambda: scheduler.requests, is_traced=endpoint is not None)
        self._last_output_ns = 0
        self._scheduler = scheduler
        self._steps = run.steps
        self._prefilling: dict[str, Any] = {}  # running, prompt not yet computed
        self._stages = int(getattr(config.parallel_config, "pipeline_parallel_size", 1))
        self._lanes: dict[str, int] = {}
        self._last_lane = 0
        self._preemptions = 0  # since the last step
        if self._stages == 1:
            lane = open_lane(self._steps.ring, scheduler, self.requests.tokenless)
            self._steps.lent = LentSteps(lane, self._steps.keeper, self._steps.hook)
        self._is_stale = False
        self._stale_since_ns = 0

    def note_asleep(self) -> None:
        """Take that steps pass by unrecorded from now on."""
        if not self._is_stale:
            self._is_stale, self._stale_since_ns = True, time.monotonic_ns()

    def note_scheduled(self, output: Any, start_ns: int, end_ns: int) -> None:
        """Book a step; a call that gave nobody a token is none."""
        tokens = output.num_scheduled_tokens
        if not tokens:
            return
        if self._is_stale:
            self._refresh()
        new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
        joined = {data.req_id: data.num_computed_tokens for data in new} if new else {}
        joined.update(list_resumed(cached))
        prefill, prefill_tokens = self._list_prefill(tokens, joined)
        total_tokens = output.total_num_scheduled_tokens
        preemptions, self._preemptions = self._preemptions, 0
        running, waiting = self._scheduler.get_request_counts()
        ticket = self._steps.record_scheduled(
            tokens,
            prefill,
            EngineState(
                waiting,
                running,
                preemptions,
                sum(cached.num_computed_tokens)
                + sum(data.num_computed_tokens for data in new)
                + total_tokens,
                self._scheduler.kv_cache_manager.usage,
            ),
            start_ns,
            end_ns,
            lane=self._choose_lane(tokens, joined) if self._stages > 1 else 0,
            joined=joined,
            total_tokens=total_tokens,
            prefill_tokens=prefill_tokens,
            may_lend=not self._prefilling,
        )
        if ticket.step_id >= 0:
            setattr(output, TICKET_ATTRIBUTE, tuple(ticket))
        if preemptions:
            self.requests.flush_preempted(ticket.step_id, end_ns)
        if joined:
            self.requests.note_started(joined, ticket.step_id, end_ns)

    def note_output(self, output: Any, ready_ns: int) -> None:
        """Book that a step's result is back since `ready_ns` and has been taken in by now."""
        self._last_output_ns = ready_ns
        ticket = getattr(output, TICKET_ATTRIBUTE, None)
        if ticket is None:
            return
        execute_ns, sample_ns = getattr(output, HOST_TIMES_ATTRIBUTE, (UNKNOWN_NS, UNKNOWN_NS))
        self._steps.record_output(
            StepTicket(*ticket),
            ready_ns,
            execute_ns=execute_ns,
            sample_ns=sample_ns,
            output_ns=time.monotonic_ns() - ready_ns,
        )
        self.requests.note_outputs(ticket[0], ready_ns)

    def note_preempted(self, request_id: str, computed_tokens: int) -> None:
        """Take a running request out."""
        self._preemptions += 1
        self._prefilling.pop(request_id, None)
        self._steps.record_left((request_id,))
        self.requests.note_preempted(request_id, computed_tokens)

    def note_freed(self, request: Any) -> None:
        """Take a request out that ended, was given up or failed."""
        request_id = request.request_id
        self._prefilling.pop(request_id, None)
        self._lanes.pop(request_id, None)
        self._steps.record_left((request_id,))
        self.requests.note_ended(request, time.monotonic_ns())

    def note_dummy(self, start_ns: int, end_ns: int) -> None:
        """Book a batch without requests."""
        self._steps.record_dummy(start_ns, end_ns)

    def note_pause(self, start_ns: int, end_ns: int, reason: int) -> None:
        """Book a pause; a step that still ran when it was asked for is not in it."""
        last_output_ns = max(self._last_output_ns, self._steps.lent.last_output_ns)
        self._steps.record_pause(max(start_ns, last_output_ns), end_ns, reason)

    def _refresh(self) -> None:
        self._is_stale = False
        self._preemptions = 0
        # All of them: those whose prompt is computed leave again with their next step.
        self._prefilling = {request.request_id: request for request in self._scheduler.running}
        self._lanes.clear()
        self.requests.catch_up(self._stale_since_ns)

    def _list_prefill(self, tokens: dict[str, int], joined: dict[str, int]) -> tuple[list[str], int]:
        # Prefill means computed tokens < prompt: right for chunks, for cached prefixes and for what is
        # computed again after a preemption. Only requests that have prompt left are looked at.
        prefilling = self._prefilling
        if joined:
            requests = self._scheduler.requests
            prefilling.update((request_id, requests[request_id]) for request_id in joined)
        if not prefilling:
            return [], 0
        prefill, prefill_tokens, done = [], 0, []
        for request_id, request in prefilling.items():
            count = tokens.get(request_id)
            if count is None:
                continue
            computed, prompt = request.num_computed_tokens, request.num_prompt_tokens  # this step included
            if computed - count < prompt:
                prefill.append(request_id)
                prefill_tokens += count
            if computed >= prompt:
                done.append(request_id)
        for request_id in done:
            del prefilling[request_id]
        return prefill, prefill_tokens

    def _choose_lane(self, tokens: dict[str, int], joined: dict[str, int]) -> int:
        # Under pipeline parallelism batches alternate: one is known by a request it had before.
        known = next((request_id for request_id in tokens if request_id in self._lanes), None)
        lane = (self._last_lane + 1) % self._stages if known is None else self._lanes[known]
        self._lanes.update(dict.fromkeys(joined, lane))
        self._last_lane = lane
        return lane


def list_resumed(cached: Any) -> dict[str, int]:
    """Return the preempted requests that run again, with their computed tokens."""
    resumed = getattr(cached, "resumed_req_ids", None)
    if resumed is None:  # before 0.12: a flag for each
        flags = cached.resumed_from_preemption
        resumed = (
            {name for name, flag in zip(cached.req_ids, flags, strict=False) if flag} if True in flags else ()
        )
    if not resumed:
        return {}
    computed = zip(cached.req_ids, cached.num_computed_tokens, strict=False)
    return {request_id: count for request_id, count in computed if request_id in resumed}
