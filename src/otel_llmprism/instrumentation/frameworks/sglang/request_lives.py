# The scheduler's requests: from the queue to their end, as records. A few numbers a request that lives; reads
# no token and no text.
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from otel_llmprism.instrumentation.frameworks.sglang.batch import BatchWork
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.native.ring_records import Finish, RequestEvent

_STOPS = ("FINISH_MATCHED_TOKEN", "FINISH_MATCHED_STR", "FINISHED_MATCHED_REGEX")
HEALTH_CHECK = "HEALTH_CHECK"  # how the ids of SGLang's own probes begin: nobody's requests
_FIRST_ERROR = 400  # of the HTTP status codes that SGLang puts on an abort of its own


@dataclass(slots=True)
class _Life:
    req: Any = None  # SGLang's own object, once there is one
    is_started: bool = False
    is_out: bool = False  # retracted, and not back yet
    has_token: bool = False
    preemptions: int = 0


class RequestLives:
    """One per scheduler; called by its thread alone."""

    def __init__(self, recorder: RequestRecorder, *, has_front_end: bool) -> None:
        self._recorder = recorder
        self._has_front_end = has_front_end  # it books arrivals and first tokens
        self._lives: dict[str, _Life] = {}
        self._waiting: dict[str, None] = {}
        self._tokenless: dict[str, None] = {}
        self._retracted: dict[str, int] = {}  # since the last step: computed tokens that are lost

    def __len__(self) -> int:
        return len(self._lives)

    def note_arrival(self, rid: str, now_ns: int) -> None:
        """Take a request that the scheduler is about to take."""
        if rid in self._lives or rid.startswith(HEALTH_CHECK):
            return
        if not self._has_front_end:
            self._recorder.record_arrival(rid, now_ns)
        self._lives[rid] = _Life()

    def note_queued(self, req: Any, now_ns: int) -> None:
        """Book that it waits for its first step."""
        life = self._lives.get(req.rid)
        if life is None or life.req is not None:
            return
        life.req = req
        self._waiting[req.rid] = None
        self._recorder.record_event(req.rid, RequestEvent.QUEUED, now_ns)

    def note_retracted(self, req: Any) -> None:
        """Take a running request back to the queue; its last token was not computed yet."""
        life = self._lives.get(req.rid)
        if life is None:
            return
        life.preemptions += 1
        life.is_out = True
        self._waiting[req.rid] = None
        self._retracted[req.rid] = max(len(req.origin_input_ids) + len(req.output_ids) - 1, 0)

    def note_scheduled(self, work: BatchWork, step: int, now_ns: int) -> int:
        """Book who started, came back or was retracted with this step; return how many were retracted."""
        retracted, self._retracted = self._retracted, {}
        for rid, lost in retracted.items():
            self._recorder.record_event(rid, RequestEvent.PREEMPTED, now_ns, step, lost)
        for rid in self._waiting.keys() & work.tokens.keys():
            del self._waiting[rid]
            life = self._lives[rid]
            event = RequestEvent.RESUMED if life.is_started else RequestEvent.SCHEDULED
            if not life.is_started and not self._has_front_end:
                self._tokenless[rid] = None
            life.is_started, life.is_out = True, False
            self._recorder.record_event(rid, event, now_ns, step, work.had.get(rid, 0))
        return len(retracted)

    def note_results(self, reqs: Iterable[Any], step: int, ready_ns: int) -> list[str]:
        """Book first tokens and ends; return who ended."""
        if self._tokenless:
            self._note_first_tokens(step, ready_ns)
        finished = [req for req in reqs if req.finished_reason is not None]
        return self.note_ended(finished, ready_ns) if finished else []

    def note_ended(self, reqs: Iterable[Any], now_ns: int, finish: Finish | None = None) -> list[str]:
        """Book the ends of those that live still; `finish` where their objects do not tell."""
        ended = []
        for req in reqs:
            life = self._lives.pop(req.rid, None)
            if life is None:
                continue  # with overlapped scheduling its last step comes after its end
            ended.append(req.rid)
            self._forget(req.rid)
            self._recorder.record_end(
                req.rid,
                now_ns,
                read_finish(req.finished_reason) if finish is None else finish,
                prompt_tokens=len(req.origin_input_ids),
                output_tokens=len(req.output_ids),
                cached_tokens=req.cached_tokens,
                preemptions=life.preemptions,
            )
        return ended

    def end_left(self, now_ns: int) -> list[str]:
        """Book the ends of all that live, when the engine says that it has none."""
        known = [life.req for life in self._lives.values() if life.req is not None]
        ended = self.note_ended(known, now_ns, Finish.UNKNOWN)
        for rid in self._lives:  # refused before there was an object
            self._recorder.record_end(rid, now_ns, Finish.UNKNOWN, prompt_tokens=0, output_tokens=0)
        ended += self._lives
        self._lives.clear()
        return ended

    def _note_first_tokens(self, step: int, ready_ns: int) -> None:
        for rid in list(self._tokenless):
            if len(self._lives[rid].req.output_ids):
                del self._tokenless[rid]
                self._recorder.record_event(rid, RequestEvent.FIRST_TOKEN, ready_ns, step)

    def _forget(self, rid: str) -> None:
        self._waiting.pop(rid, None)
        self._tokenless.pop(rid, None)
        self._retracted.pop(rid, None)


def read_finish(reason: Any) -> Finish:
    """Return why a request ended, by the class of SGLang's reason; its message stays where it is."""
    name = type(reason).__name__
    if name in _STOPS:
        return Finish.STOP
    if name == "FINISH_LENGTH":
        return Finish.LENGTH
    if name == "FINISH_ABORT":
        status = getattr(reason, "status_code", None)
        return Finish.ERROR if status is not None and int(status) >= _FIRST_ERROR else Finish.ABORT
    return Finish.UNKNOWN
