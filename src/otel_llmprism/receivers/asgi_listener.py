# Runs one ASGI application on one address, in a thread and event loop of its own. Used by OTLP/HTTP,
# the health endpoints and the page; knows nothing of what the application does.
import asyncio
import ssl
import threading
import time
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from otel_llmprism.receivers.listen_address import ListenAddress, ListenError, bind_socket

_START_TIMEOUT_S = 10.0
_STOP_MARGIN_S = 5.0


class BoundedH11Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 with bounds it lacks: connections, and the time headers may take to arrive."""

    max_connections = 1024
    header_timeout_s = 15.0
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.abort()
            return
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_timer()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        if self._is_in_request():
            self._forget_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_timeout_s, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._header_timer = None
        if not self._is_in_request():
            self.transport.close()

    def _is_in_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _forget_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class _Server(uvicorn.Server):
    """Says when it accepts, and closes at the deadline what clients keep open."""

    def __init__(self, config: uvicorn.Config, accepting: threading.Event) -> None:
        super().__init__(config)
        self._accepting = accepting

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._accepting.set()

    async def shutdown(self, sockets: Any = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # lets the loop drop the aborted transports


class AsgiListener:
    """A Source for `app`; `port` is the one it listens on once started."""

    def __init__(
        self,
        app: Any,
        address: ListenAddress,
        *,
        name: str,
        ssl_context: ssl.SSLContext | None = None,
        protocol: type[H11Protocol] = BoundedH11Protocol,
    ) -> None:
        self._app = app
        self._address = address
        self._name = name
        self._ssl_context = ssl_context
        self._protocol = protocol
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    def start(self) -> None:
        """Listen; raises ListenError with the mend."""
        listener = bind_socket(self._address)
        self.port = listener.getsockname()[1]
        accepting = threading.Event()
        self._server = _Server(self._build_config(), accepting)
        serve = self._server.serve
        self._thread = threading.Thread(
            target=lambda: asyncio.run(serve(sockets=[listener])), name=self._name, daemon=True
        )
        self._thread.start()
        if not accepting.wait(_START_TIMEOUT_S):
            self._server.should_exit = True
            raise ListenError(f"{self._name} did not start on {self._address}; see the log")

    def stop(self, deadline_ns: int) -> None:
        """Accept nothing more, let running requests finish until `deadline_ns`, close what is left."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        grace_s = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        server.config.timeout_graceful_shutdown = grace_s  # type: ignore[assignment]  # seconds to wait_for
        server.should_exit = True
        self._thread.join(grace_s + _STOP_MARGIN_S)

    def _build_config(self) -> uvicorn.Config:
        context = self._ssl_context
        return uvicorn.Config(
            self._app,
            http=self._protocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            ssl_context_factory=None if context is None else (lambda _config, _default: context),
        )
