# One request as the ledger tells of it, note by note: what the front end saw and what the engine's core
# counted become one EndedRequest. Pure; exporter and `steps` share it.
from dataclasses import dataclass, field, fields

from otel_llmprism.exporters.request_spans import FINISH_REASONS, UNKNOWN_NS, EndedRequest, Preemption
from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.model.steps import ArrivalTable
from otel_llmprism.native.ring_records import Finish, RequestEvent

MAX_PREEMPTIONS = 16  # that are shown one by one; all are counted
_SAMPLED, _REMOTE = 1, 2  # ArrivalTable.flags


@dataclass(frozen=True, slots=True)
class EventNote:
    """A row of EventTable without whose it is."""

    event: int
    time_ns: int
    tokens: int


@dataclass(frozen=True, slots=True)
class EndNote:
    """A row of EndTable without whose it is: the core's end and its totals."""

    time_ns: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    steps: int
    preemptions: int
    finish: int
    error: int


END_COLUMNS = tuple(field.name for field in fields(EndNote))


@dataclass(slots=True)
class RequestLife:
    request_id: str
    external_id: str
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    is_sampled: bool
    has_remote_parent: bool
    arrival_ns: int
    is_queued: bool = False  # the core has it
    scheduled_ns: int = UNKNOWN_NS
    first_token_ns: int = UNKNOWN_NS
    responded_ns: int = UNKNOWN_NS
    responded_finish: int = Finish.UNKNOWN
    end: EndNote | None = None
    first_cached_tokens: int = 0
    preemptions: list[Preemption] = field(default_factory=list)
    preemption_count: int = 0
    lost_tokens: int = 0  # at a preemption that it has not come back from
    recomputed_tokens: int = 0
    steps: int = 0  # these three by the ledger's steps
    prefill_tokens: int = 0
    decode_tokens: int = 0

    @property
    def is_ended(self) -> bool:
        """Whether the front end or the core told of its end."""
        return self.end is not None or self.responded_ns != UNKNOWN_NS

    @property
    def ended_ns(self) -> int:
        """When it ended for the user, as far as anybody told."""
        if self.responded_ns != UNKNOWN_NS:
            return self.responded_ns
        return self.end.time_ns if self.end else UNKNOWN_NS

    @property
    def left_ns(self) -> int:
        """When it left the engine's core, as far as anybody told."""
        return self.end.time_ns if self.end else self.responded_ns

    def note_event(self, note: EventNote) -> None:
        """Take in one event; of what happens once, the first telling counts."""
        if note.event == RequestEvent.FIRST_TOKEN:
            if self.first_token_ns == UNKNOWN_NS:
                self.first_token_ns = note.time_ns
        elif note.event == RequestEvent.RESPONDED:
            if self.responded_ns == UNKNOWN_NS:
                self.responded_ns, self.responded_finish = note.time_ns, note.tokens
        else:
            self.is_queued = True
            self._note_core_event(note)

    def _note_core_event(self, note: EventNote) -> None:
        if note.event == RequestEvent.SCHEDULED and self.scheduled_ns == UNKNOWN_NS:
            self.scheduled_ns, self.first_cached_tokens = note.time_ns, note.tokens
        elif note.event == RequestEvent.PREEMPTED:
            self.preemption_count += 1
            self.lost_tokens = note.tokens
            if self.preemption_count <= MAX_PREEMPTIONS:
                self.preemptions.append(Preemption(note.time_ns, note.tokens))
        elif note.event == RequestEvent.RESUMED:
            self.recomputed_tokens += max(0, self.lost_tokens - note.tokens)
            self.lost_tokens = 0
            if self.preemptions and self.preemption_count <= MAX_PREEMPTIONS:
                self.preemptions[-1] = self.preemptions[-1].resume(note.time_ns, note.tokens)

    def to_ended(self, now_ns: int = UNKNOWN_NS) -> EndedRequest:
        """Return the whole: the end as the front end told it, else the core's; the core's totals.

        Without an end it is an error that ended `now_ns`.
        """
        end = self.end or self._estimate_end(now_ns)
        is_told = self.responded_finish != Finish.UNKNOWN
        finish = self.responded_finish if is_told else end.finish
        finish = finish if finish < len(FINISH_REASONS) else Finish.UNKNOWN
        return EndedRequest(
            request_id=self.request_id,
            external_id=self.external_id,
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_span_id=self.parent_span_id,
            has_remote_parent=self.has_remote_parent,
            arrival_ns=self.arrival_ns,
            scheduled_ns=self.scheduled_ns,
            first_token_ns=self.first_token_ns,
            ended_ns=self.ended_ns if self.is_ended else end.time_ns,
            prompt_tokens=end.prompt_tokens,
            output_tokens=end.output_tokens,
            cached_tokens=end.cached_tokens,
            steps=end.steps or self.steps,
            preemptions=end.preemptions or self.preemption_count,
            finish=finish,
            is_error=finish == Finish.ERROR if is_told else bool(end.error),
            recomputed_tokens=self.recomputed_tokens,
            preempted=tuple(self.preemptions),
        )

    def _estimate_end(self, now_ns: int) -> EndNote:
        """Work the totals out of the steps, since the core told none: it crashed or never had it."""
        has_output = self.first_token_ns != UNKNOWN_NS
        prompt = self.prefill_tokens + self.first_cached_tokens - self.recomputed_tokens
        last_seen_ns = max(self.arrival_ns, self.scheduled_ns, self.first_token_ns)
        return EndNote(
            time_ns=last_seen_ns if now_ns == UNKNOWN_NS else now_ns,
            prompt_tokens=max(0, prompt),
            output_tokens=self.decode_tokens + 1 if has_output else 0,
            cached_tokens=self.first_cached_tokens,
            steps=self.steps,
            preemptions=self.preemption_count,
            finish=Finish.UNKNOWN,
            error=int(not self.is_ended),
        )


def read_arrival(arrivals: ArrivalTable, texts: RequestTexts, row: int) -> RequestLife:
    """Return the beginning of the request in `row`."""
    flags = int(arrivals.flags[row])
    return RequestLife(
        request_id=texts.read_request_id(row),
        external_id=texts.read_external_id(row),
        trace_id=texts.read_trace_id(row),
        span_id=texts.read_span_id(row),
        parent_span_id=texts.read_parent_span_id(row),
        is_sampled=bool(flags & _SAMPLED),
        has_remote_parent=bool(flags & _REMOTE),
        arrival_ns=int(arrivals.arrival_ns[row]),
    )
