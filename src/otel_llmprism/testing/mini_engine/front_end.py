# The engine's end of the pipe to its client: messages in without waiting longer than asked, answers out. A
# fault may hold new requests back, as a busy front end does.
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from otel_llmprism.testing.mini_engine.fault_injector import FaultInjector
from otel_llmprism.testing.mini_engine.fault_schedule import Place
from otel_llmprism.testing.mini_engine.messages import (
    Close,
    Done,
    Message,
    Submit,
    receive_message,
    send_message,
)

_NEW_SHARE = 0.1  # of the newest request in what is held to be usual


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message and when it came; a held one is handed on later."""

    message: Message
    arrived_ns: int
    due_ns: int


class FrontEnd:
    """`is_closed`: nothing more will be asked (the client said so or is gone)."""

    def __init__(self, pipe: Connection, injector: FaultInjector) -> None:
        self._pipe = pipe
        self._injector = injector
        self._held: deque[Arrived] = deque()  # in order: a later one does not overtake
        self._open: dict[str, Arrived] = {}
        self._usual_ns = 0.0  # from arrival to answer, without us
        self._is_connected = True
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed and not self._held

    def receive(self, wait_s: float) -> Iterator[Arrived]:
        """Yield what has come and is not held back; wait up to `wait_s` for the first message."""
        if self._held:
            wait_s = min(wait_s, max(0.0, (self._held[0].due_ns - time.monotonic_ns()) / 1e9))
        self._read_pipe(wait_s)
        while self._held and self._held[0].due_ns <= time.monotonic_ns():
            yield self._held.popleft()

    def answer(self, request_id: str, finish_reason: str, output_tokens: int) -> None:
        """Tell the client that a request has ended; a client that is gone misses it."""
        arrived = self._open.pop(request_id, None)
        if arrived is not None:
            spent_ns = time.monotonic_ns() - arrived.due_ns
            self._usual_ns += (spent_ns - self._usual_ns) * (_NEW_SHARE if self._usual_ns else 1.0)
        try:
            send_message(self._pipe, Done(request_id, finish_reason, output_tokens))
        except (BrokenPipeError, ConnectionResetError):
            self._is_connected, self._is_closed = False, True

    def _read_pipe(self, wait_s: float) -> None:
        try:
            while self._is_connected and self._pipe.poll(wait_s):
                message = receive_message(self._pipe)
                if isinstance(message, Close):
                    self._is_closed = True
                else:
                    self._hold(message, time.monotonic_ns())
                wait_s = 0.0
        except (EOFError, ConnectionResetError):
            self._is_connected, self._is_closed = False, True

    def _hold(self, message: Message, now_ns: int) -> None:
        due_ns = now_ns
        if isinstance(message, Submit):
            entry = self._injector.plan.find_entry(Place.FRONT_END, now_ns)
            if entry is not None:
                due_ns += int((entry.intensity - 1) * self._usual_ns)
                self._injector.note_request(message.request_id, entry, due_ns - now_ns)
        if self._held:
            due_ns = max(due_ns, self._held[-1].due_ns)
        arrived = Arrived(message, now_ns, due_ns)
        self._held.append(arrived)
        if isinstance(message, Submit):
            self._open[message.request_id] = arrived
