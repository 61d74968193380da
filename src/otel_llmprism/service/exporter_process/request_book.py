# The requests in flight: arrivals, events and ends come in as ledger tables, ended requests go out once
# the steps they were in have had time to come. One thread; time comes in.
from collections.abc import Iterator
from dataclasses import dataclass, field

from otel_llmprism.exporters.request_spans import UNKNOWN_NS, EndedRequest
from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.native.ring_records import RequestEvent
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.exporter_process.kept_steps import KeptSteps

# An ended request waits so long for its last steps: longer than a step waits for its ranks.
HOLD_NS = 1_500_000_000
MAX_LIVE = 200_000  # beyond that arrivals are counted as lost: an engine that never ends requests
_SAMPLED, _REMOTE = 1, 2  # ArrivalTable.flags


@dataclass(slots=True)
class LiveRequest:
    request_id: str
    external_id: str
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    is_sampled: bool
    has_remote_parent: bool
    arrival_ns: int
    scheduled_ns: int = UNKNOWN_NS
    first_token_ns: int = UNKNOWN_NS
    ended_ns: int = UNKNOWN_NS
    kept_steps: KeptSteps = field(default_factory=KeptSteps)
    end_row: tuple[int, ...] = ()
    steps: int = 0  # these two by the ledger
    decode_tokens: int = 0


class RequestBook:
    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._live: dict[int, LiveRequest] = {}
        self._ended: dict[int, None] = {}  # handles in order of their ends

    def count_requests(self) -> tuple[int, int]:
        """Return how many requests were scheduled and not ended, and how many wait for their first step."""
        open_ones = [request for request in self._live.values() if request.ended_ns == UNKNOWN_NS]
        running = sum(request.scheduled_ns != UNKNOWN_NS for request in open_ones)
        return running, len(open_ones) - running

    def note_tables(self, tables: LedgerTables) -> None:
        self._note_arrivals(tables)
        self._note_events(tables)
        self._note_ends(tables)

    def find(self, handle: int) -> LiveRequest | None:
        return self._live.get(handle)

    def is_sampled(self, handle: int) -> bool:
        request = self._live.get(handle)
        return request is not None and request.is_sampled

    def release(self, until_ns: int) -> Iterator[LiveRequest]:
        """Yield and forget the requests that ended until then, in order of their ends."""
        for handle in list(self._ended):
            request = self._live[handle]
            if request.ended_ns > until_ns:
                return
            del self._ended[handle], self._live[handle]
            yield request

    def release_all(self, now_ns: int) -> Iterator[LiveRequest]:
        """Yield everything: the engine is gone. What never ended has an empty `end_row`."""
        yield from self.release(now_ns)
        for handle, request in list(self._live.items()):
            del self._live[handle]
            if request.ended_ns == UNKNOWN_NS:
                request.ended_ns = now_ns
            yield request
        self._ended.clear()

    def _note_arrivals(self, tables: LedgerTables) -> None:
        arrivals = tables.arrivals
        texts = RequestTexts(arrivals, tables.text)
        for row in range(len(arrivals)):
            flags = int(arrivals.flags[row])
            if len(self._live) >= MAX_LIVE:
                self._count("too_many_requests")
                continue
            self._live[int(arrivals.handle[row])] = LiveRequest(
                request_id=texts.read_request_id(row),
                external_id=texts.read_external_id(row),
                trace_id=texts.read_trace_id(row),
                span_id=texts.read_span_id(row),
                parent_span_id=texts.read_parent_span_id(row),
                is_sampled=bool(flags & _SAMPLED),
                has_remote_parent=bool(flags & _REMOTE),
                arrival_ns=int(arrivals.arrival_ns[row]),
            )

    def _note_events(self, tables: LedgerTables) -> None:
        events = tables.events
        columns = (events.handle.tolist(), events.event.tolist(), events.time_ns.tolist())
        for handle, event, time_ns in zip(*columns, strict=True):
            request = self._live.get(handle)
            if request is None:
                self._count("arrival_missing")
            elif event == RequestEvent.SCHEDULED and request.scheduled_ns == UNKNOWN_NS:
                request.scheduled_ns = time_ns
            elif event == RequestEvent.FIRST_TOKEN and request.first_token_ns == UNKNOWN_NS:
                request.first_token_ns = time_ns

    def _note_ends(self, tables: LedgerTables) -> None:
        ends = tables.ends
        columns = (
            ends.prompt_tokens,
            ends.output_tokens,
            ends.cached_tokens,
            ends.steps,
            ends.preemptions,
            ends.finish,
            ends.error,
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for handle, time_ns, row in zip(ends.handle.tolist(), ends.time_ns.tolist(), rows, strict=True):
            request = self._live.get(handle)
            if request is None:
                self._count("arrival_missing")
                continue
            request.ended_ns, request.end_row = time_ns, row
            self._ended[handle] = None

    def _count(self, cause: str) -> None:
        self._counters.add(LOST, stage="requests", cause=cause)


def finish_request(request: LiveRequest) -> EndedRequest:
    """Return the request with its engine's totals, or with the ledger's where the engine told none."""
    prompt, output, cached, told_steps, preemptions, finish, error = request.end_row or (
        *(0, request.decode_tokens, 0, 0, 0, 0),
        1,
    )
    return EndedRequest(
        request_id=request.request_id,
        external_id=request.external_id,
        trace_id=request.trace_id,
        span_id=request.span_id,
        parent_span_id=request.parent_span_id,
        has_remote_parent=request.has_remote_parent,
        arrival_ns=request.arrival_ns,
        scheduled_ns=request.scheduled_ns,
        first_token_ns=request.first_token_ns,
        ended_ns=request.ended_ns,
        prompt_tokens=prompt,
        output_tokens=output,
        cached_tokens=cached,
        steps=told_steps or request.steps,
        preemptions=preemptions,
        finish=finish,
        is_error=bool(error),
    )
