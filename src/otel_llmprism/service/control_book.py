# Who asked for which deep-dive, and who may have one now: requests in, grants out, within one budget for the
# whole fleet, so that one bad switch does not open a thousand. Time comes in; knows no HTTP.
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.control import CONTROL_REQUESTS

MAX_ENGINE_CHARS = 256
_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """`token_file` empty: only this machine may ask. The rest is the fleet's budget of deep-dives."""

    token_file: str = ""
    max_running: int = 2
    max_waiting: int = 256
    max_steps: int = 200
    cool_down_s: float = 60.0  # of one engine, after each
    expire_s: float = 120.0  # of a request that no engine came for, or that the budget did not reach
    max_run_s: float = 300.0  # then it counts as over, whatever the engine says


class State(StrEnum):
    WAITING = "waiting"
    GRANTED = "granted"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"


class RequestRefusedError(Exception):
    """The request was not taken; the text says why, `retry_after_s` when it is worth asking again."""

    def __init__(self, why: str, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class DeepDive:
    """One request for the next `steps` whole steps of an engine."""

    id: str
    engine: str
    steps: int
    since_ns: int  # of its state
    state: State = State.WAITING


class ControlBook:
    """Thread-safe: findings file, HTTP asks."""

    def __init__(self, config: ControlConfig, counters: Counters) -> None:
        self._config = config
        self._counters = counters
        self._lock = threading.Lock()
        self._open: dict[str, DeepDive] = {}  # by engine: one at a time
        self._ended: dict[str, DeepDive] = {}  # by engine, the latest; bounded by their cool-down

    def file_request(self, engine: str, steps: int, now_ns: int) -> DeepDive:
        """Take a request; that of an engine which has one already is the same one."""
        with self._lock:
            self._end_overdue(now_ns)
            self._count("asked")
            if (found := self._open.get(engine)) is not None:
                return found
            try:
                self._check(engine, steps, now_ns)
            except RequestRefusedError:
                self._count("refused")
                raise
            request = DeepDive(secrets.token_hex(8), engine, steps, now_ns)
            self._open[engine] = request
            return request

    def take_granted(self, engine: str, now_ns: int) -> DeepDive | None:
        """Return what this engine is to do now, again and again until it is settled; None for nothing."""
        with self._lock:
            self._end_overdue(now_ns)
            request = self._open.get(engine)
            if request is None or request.state is State.GRANTED:
                return request
            running = sum(other.state is State.GRANTED for other in self._open.values())
            if running >= self._config.max_running:
                return None
            request.state, request.since_ns = State.GRANTED, now_ns
            self._count("granted")
            return request

    def settle(self, request_id: str, now_ns: int, *, is_done: bool) -> bool:
        """Note how a granted request ended; False when there is no such request."""
        with self._lock:
            self._end_overdue(now_ns)
            found = [request for request in self._open.values() if request.id == request_id]
            for request in found:
                self._end(request, State.DONE if is_done else State.FAILED, now_ns)
            return bool(found)

    def find(self, request_id: str, now_ns: int) -> DeepDive | None:
        """Return a request that is open or ended within the cool-down."""
        with self._lock:
            self._end_overdue(now_ns)
            known = (*self._open.values(), *self._ended.values())
            return next((request for request in known if request.id == request_id), None)

    def _check(self, engine: str, steps: int, now_ns: int) -> None:
        config = self._config
        if not 1 <= len(engine) <= MAX_ENGINE_CHARS:
            raise RequestRefusedError(f"engine takes 1 to {MAX_ENGINE_CHARS} characters")
        if not 1 <= steps <= config.max_steps:
            raise RequestRefusedError(f"steps takes 1 to {config.max_steps} (service.control.max_steps)")
        if (last := self._ended.get(engine)) is not None:
            left_s = config.cool_down_s - (now_ns - last.since_ns) / _S
            raise RequestRefusedError("this engine had its deep-dive a moment ago", left_s)
        if len(self._open) >= config.max_waiting:
            raise RequestRefusedError("too many requests wait", config.expire_s)

    def _end_overdue(self, now_ns: int) -> None:
        for request in list(self._list_overdue(now_ns)):
            self._end(request, State.EXPIRED, now_ns)
        cool_ns = round(self._config.cool_down_s * _S)
        self._ended = {
            engine: request for engine, request in self._ended.items() if now_ns - request.since_ns < cool_ns
        }

    def _list_overdue(self, now_ns: int) -> Iterator[DeepDive]:
        for request in self._open.values():
            is_granted = request.state is State.GRANTED
            limit_s = self._config.max_run_s if is_granted else self._config.expire_s
            if now_ns - request.since_ns > limit_s * _S:
                yield request

    def _end(self, request: DeepDive, state: State, now_ns: int) -> None:
        was_granted = request.state is State.GRANTED
        del self._open[request.engine]
        request.state, request.since_ns = state, now_ns
        self._count(state.value)
        if was_granted:  # what was never begun needs no rest
            self._ended[request.engine] = request

    def _count(self, outcome: str) -> None:
        self._counters.add(CONTROL_REQUESTS, outcome=outcome)
