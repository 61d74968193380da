# The listening receivers as one Source that can change its configuration: what stays the same keeps
# listening; a new port opens before the old one closes; a failure leaves everything as it was.
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Thread
from typing import Protocol

from otel_llmprism.pipeline.ports import Source
from otel_llmprism.receivers.tls import ServerTlsConfig

_LOG = logging.getLogger(__name__)
# Calls that run when their listener closes may finish for so long.
_GRACE_NS = 5_000_000_000


class ListenConfig(Protocol):
    """What the configurations of all listening receivers have."""

    @property
    def endpoint(self) -> str: ...

    @property
    def token_file(self) -> str: ...

    @property
    def tls(self) -> ServerTlsConfig: ...


@dataclass(frozen=True, slots=True)
class Listener:
    """How one receiver is made, and what decides that it must be made anew."""

    config: object
    endpoint: str
    has_files: bool  # certificates or tokens, which may have changed under the same name
    build: Callable[[], Source]


def to_listener(config: ListenConfig, build: Callable[[], Source]) -> Listener:
    """Return the listener of a configuration, `build` making its receiver."""
    return Listener(config, config.endpoint, bool(config.token_file) or config.tls.is_on, build)


class ReceiverSet:
    """A Source. `replace` and `stop` come from one thread."""

    def __init__(self, listeners: Mapping[str, Listener]) -> None:
        self._listeners = dict(listeners)
        self._running: dict[str, Source] = {}

    def start(self) -> None:
        for name, listener in self._listeners.items():
            self._running[name] = _start(listener)

    def stop(self, deadline_ns: int) -> None:
        """Stop all at once, so that one that hangs leaves the others their time."""
        threads = [Thread(target=source.stop, args=(deadline_ns,)) for source in self._running.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._running.clear()

    def find(self, name: str) -> Source | None:
        """Return the running receiver of a name, for its port."""
        return self._running.get(name)

    def replace(self, listeners: Mapping[str, Listener]) -> None:
        """Listen as `listeners` says; on failure everything listens as before and the error is raised."""
        started: dict[str, Source] = {}
        closed: list[str] = []
        try:
            for name, listener in listeners.items():
                old = self._listeners.get(name)
                running = self._running.get(name)  # None also when it could not come back once
                is_same = old is not None and old.config == listener.config and not listener.has_files
                if is_same and running is not None:
                    continue
                if running is not None and old is not None and old.endpoint == listener.endpoint:
                    # One port has one owner: it refuses connections for the moment between the two.
                    self._running.pop(name).stop(time.monotonic_ns() + _GRACE_NS)
                    closed.append(name)
                started[name] = _start(listener)
        except Exception:
            self._go_back(started, closed)
            raise
        for name in set(self._listeners) - set(listeners) | set(started):
            old_source = self._running.pop(name, None)
            if old_source is not None:
                old_source.stop(time.monotonic_ns() + _GRACE_NS)
        self._running |= started
        self._listeners = dict(listeners)

    def _go_back(self, started: Mapping[str, Source], closed: list[str]) -> None:
        for source in started.values():
            source.stop(time.monotonic_ns() + _GRACE_NS)
        for name in closed:
            try:
                self._running[name] = _start(self._listeners[name])
            except Exception:  # noqa: BLE001 - the others must come back too; the health page tells
                _LOG.exception("receiver %s could not listen again after a failed reload", name)


def _start(listener: Listener) -> Source:
    source = listener.build()
    source.start()
    return source
