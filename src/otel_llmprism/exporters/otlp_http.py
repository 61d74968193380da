# OTLP/HTTP protobuf over raw bytes, on kept-alive connections of the standard library's client. Blocking
# calls from any number of threads, one connection each. Knows neither queue nor retry.
import gzip
import http.client
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from otel_llmprism import __version__
from otel_llmprism.config.errors import ConfigError
from otel_llmprism.exporters.otlp_client_config import (
    Compression,
    Endpoint,
    OtlpClientConfig,
    check_client_config,
)
from otel_llmprism.exporters.otlp_client_result import SendResult, SendStatus, shorten_message
from otel_llmprism.exporters.otlp_http_status import HttpAnswer, classify_answer
from otel_llmprism.exporters.tls import build_ssl_context
from otel_llmprism.model.signals import Signal

MAX_ANSWER_BYTES = 64 * 1024
# Level 6 takes more than twice the time for a tenth of the size (docs/adr/0050).
_GZIP_LEVEL = 1
# What a server that closed an idle connection makes us see on the next request.
_STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ConnectionAbortedError)


class _Compressor(Protocol):
    def __call__(self, payload: bytes, /) -> bytes: ...


class HttpTransport:
    def __init__(self, config: OtlpClientConfig) -> None:
        endpoint = check_client_config(config)
        self._dialer = _Dialer(endpoint, build_ssl_context(config.tls) if endpoint.is_secure else None)
        self._paths = {s: config.url_path or f"{endpoint.path}/v1/{s.value}" for s in Signal}
        self._compress, encoding = _build_compressor(config.compression)
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "User-Agent": f"otel-llmprism/{__version__}",
            **encoding,
            **{name: value.reveal() for name, value in config.headers.items()},
        }

    def send(self, signal: Signal, payload: bytes, timeout_s: float) -> SendResult:
        """Send one request and wait; never raises for what the network or the backend does."""
        body = self._compress(payload)
        try:
            answer = self._exchange(self._paths[signal], body, time.monotonic() + timeout_s)
        # ValueError: how ssl says that another thread closed the connection in the middle of a read.
        except (OSError, http.client.HTTPException, ValueError) as error:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return SendResult(SendStatus.RETRYABLE, shorten_message(text))
        return classify_answer(signal, answer, time.time())

    def close(self) -> None:
        """Break off what is in flight and release every connection."""
        self._dialer.close()

    def _exchange(self, path: str, body: bytes, deadline_s: float) -> HttpAnswer:
        connection = self._dialer.take_idle()
        if connection is not None:
            try:
                return self._ask(connection, path, body, deadline_s)
            except _STALE:
                if time.monotonic() >= deadline_s:
                    raise
        return self._ask(self._dialer.open_new(), path, body, deadline_s)

    def _ask(
        self, connection: http.client.HTTPConnection, path: str, body: bytes, deadline_s: float
    ) -> HttpAnswer:
        is_reusable = False
        try:
            _limit_time(connection, deadline_s)
            connection.request("POST", self._dialer.to_target(path), body, self._headers)
            _limit_time(connection, deadline_s)
            with connection.getresponse() as response:
                answer = HttpAnswer(
                    response.status,
                    response.headers.get("Content-Type", ""),
                    response.headers.get("Retry-After", ""),
                    response.headers.get("Location", "") if 300 <= response.status < 400 else "",
                    response.read(MAX_ANSWER_BYTES),
                )
                is_reusable = response.isclosed() and not response.will_close
            return answer
        finally:
            self._dialer.give_back(connection, is_reusable=is_reusable)


class _Dialer:
    """Opens connections, keeps the idle ones, and can break all of them off."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        self._endpoint = endpoint
        self._context = context
        self._proxy = _find_proxy(endpoint)
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self._is_closed = False

    def take_idle(self) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._is_closed or not self._idle:
                return None
            connection = self._idle.pop()
            self._busy.add(connection)
            return connection

    def open_new(self) -> http.client.HTTPConnection:
        host, port = self._proxy or (self._endpoint.host, self._endpoint.port)
        connection = (
            http.client.HTTPConnection(host, port)
            if self._context is None
            else http.client.HTTPSConnection(host, port, context=self._context)
        )
        if self._proxy is not None and self._endpoint.is_secure:
            connection.set_tunnel(self._endpoint.host, self._endpoint.port)
        with self._lock:
            if self._is_closed:
                raise ConnectionAbortedError("the client is closed")
            self._busy.add(connection)
        return connection

    def give_back(self, connection: http.client.HTTPConnection, *, is_reusable: bool) -> None:
        with self._lock:
            self._busy.discard(connection)
            if is_reusable and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for connection in idle:
            connection.close()
        for connection in busy:
            _break_off(connection)

    def to_target(self, path: str) -> str:
        """Return the request target: a proxy for plain HTTP wants the whole URL."""
        if self._proxy is None or self._endpoint.is_secure:
            return path
        return f"http://{self._endpoint.authority}{path}"


def _limit_time(connection: http.client.HTTPConnection, deadline_s: float) -> None:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    connection.timeout = left_s
    if connection.sock is not None:
        connection.sock.settimeout(left_s)


def _break_off(connection: http.client.HTTPConnection) -> None:
    sock = connection.sock
    if sock is not None:
        try:
            sock.shutdown(2)
        except OSError:
            return  # already gone, which is what we want


def _find_proxy(endpoint: Endpoint) -> tuple[str, int] | None:
    """Return the proxy that HTTP(S)_PROXY and NO_PROXY name for this endpoint."""
    scheme = "https" if endpoint.is_secure else "http"
    url = urllib.request.getproxies().get(scheme)
    if not url or urllib.request.proxy_bypass(endpoint.authority):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return (parts.hostname, parts.port or 80) if parts.hostname else None


def _build_compressor(compression: Compression) -> tuple[_Compressor, dict[str, str]]:
    if compression is Compression.GZIP:
        return _compress_gzip, {"Content-Encoding": "gzip"}
    if compression is Compression.ZSTD:
        return _load_zstd(), {"Content-Encoding": "zstd"}
    return _keep_as_is, {}


def _keep_as_is(payload: bytes) -> bytes:
    return payload


def _compress_gzip(payload: bytes) -> bytes:
    return gzip.compress(payload, _GZIP_LEVEL, mtime=0)


def _load_zstd() -> Callable[[bytes], bytes]:
    try:
        import zstandard  # noqa: PLC0415 - only the [processor] extra brings it
    except ImportError as error:
        raise ConfigError(
            "compression zstd needs the package zstandard: pip install 'otel-llmprism[processor]'"
        ) from error

    def compress_zstd(payload: bytes) -> bytes:
        # A compressor object is not thread-safe; making one is cheap beside the work it does.
        return zstandard.ZstdCompressor(level=1).compress(payload)

    return compress_zstd
