# Brings deep-dive requests from the processor to the engine: polls in a thread of its own, hands each
# request once to the sockets of the run's processes, and tells the processor when its steps are through.
import logging
import random
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.native.control_socket import ControlError, ask_process, find_sockets, list_socket_roots
from otel_llmprism.native.run_folder import RunDescription
from otel_llmprism.service.exporter_process.processor_poll import DeepRequest, PollError, ProcessorPoll

POLL_S = 3.0
SLOWEST_POLL_S = 60.0
_MAX_KNOWN = 256
_STOP_S = 1.0
_log = logging.getLogger("otel_llmprism")


class Poll(Protocol):
    def ask(self) -> list[DeepRequest]: ...

    def settle(self, request_id: str, *, is_done: bool) -> None: ...


class EngineSockets(Protocol):
    def ask_all(self, request: Mapping[str, object]) -> list[dict[str, Any]]: ...


class RunSockets:
    """The control sockets of one run's processes, looked for anew each time: processes come and go."""

    def __init__(self, roots: list[Path], run: str) -> None:
        self._roots = roots
        self._run = run

    def ask_all(self, request: Mapping[str, object]) -> list[dict[str, Any]]:
        """Return the answers of those that answered with yes."""
        answers = []
        for root in self._roots:
            for path in find_sockets(root).values():
                try:
                    if ask_process(path, {"command": "status"}).get("run") == self._run:
                        answers.append(ask_process(path, request))
                except ControlError:
                    continue  # ended, asleep, or not ours
        return answers


class ControlRelay:
    """`turn` is one look; `start` and `stop` run it in a thread."""

    def __init__(
        self, poll: Poll, engine: EngineSockets, draw: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._poll = poll
        self._engine = engine
        self._draw = draw
        self._known: dict[str, None] = {}
        self._running: dict[str, None] = {}
        self._failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmprism-relay", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; an exchange under way is left behind."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def turn(self) -> float:
        """Do what is to be done; return how many seconds to wait before the next look."""
        try:
            self._settle_finished()
            for request in self._poll.ask():
                if request.id not in self._known:
                    self._relay(request)
        except (PollError, OSError, ValueError) as error:
            self._note_failure(error)
        else:
            if self._failures:
                _log.info("llmprism exporter: the processor answers again")
            self._failures = 0
        # Spread, so that a fleet that started together does not ask together.
        return min(POLL_S * 2.0**self._failures, SLOWEST_POLL_S) * self._draw(0.75, 1.25)

    def _run(self) -> None:
        wait_s = self._draw(0.0, POLL_S)
        while not self._stop.wait(wait_s):
            wait_s = self.turn()

    def _relay(self, request: DeepRequest) -> None:
        self._known[request.id] = None
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        if self._engine.ask_all({"command": "deep-dive", "steps": request.steps}):
            self._running[request.id] = None
        else:
            self._poll.settle(request.id, is_done=False)

    def _settle_finished(self) -> None:
        if not self._running:
            return
        schedulers = [a for a in self._engine.ask_all({"command": "status"}) if a.get("schedules")]
        if schedulers and not any(answer.get("deep_left") for answer in schedulers):
            for request_id in list(self._running):
                self._poll.settle(request_id, is_done=True)
                del self._running[request_id]

    def _note_failure(self, error: Exception) -> None:
        if self._failures == 0:
            _log.warning("llmprism exporter: no deep-dives from the processor: %s", error)
        self._failures = min(self._failures + 1, 16)


def build_relay(run: RunDescription, environment: Mapping[str, str]) -> ControlRelay | None:
    """Return the relay that the environment asks for, None when it asks for none or cannot work."""
    url = environment.get("OTEL_LLMPRISM_PROCESSOR", "").strip()
    if not url:
        return None
    token_file = environment.get("OTEL_LLMPRISM_PROCESSOR_TOKEN_FILE", "").strip()
    try:
        poll = ProcessorPoll(url, token_file, run.engine_id)
    except ConfigError as error:
        _log.warning("llmprism exporter: no deep-dives from the processor: %s", error)
        return None
    if poll.is_token_in_the_clear:
        _log.warning("llmprism exporter: OTEL_LLMPRISM_PROCESSOR sends its token unencrypted; use https://")
    return ControlRelay(poll, RunSockets(list_socket_roots(environment), run.run))
