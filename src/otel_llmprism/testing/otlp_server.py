# A backend for tests: takes OTLP over gRPC and HTTP on loopback, keeps every accepted request as raw
# bytes, and behaves as a script says. A public fake; never part of a service.
import contextlib
import gzip
import ssl
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import grpc
import zstandard
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_llmprism.model.signals import Signal

_SERVICES = {
    "opentelemetry.proto.collector.trace.v1.TraceService": Signal.TRACES,
    "opentelemetry.proto.collector.logs.v1.LogsService": Signal.LOGS,
    "opentelemetry.proto.collector.metrics.v1.MetricsService": Signal.METRICS,
}
_PATHS = {f"/v1/{signal.value}": signal for signal in Signal}
_THREADS = 16


@dataclass(frozen=True, slots=True)
class Received:
    signal: Signal
    payload: bytes  # decompressed
    headers: Mapping[str, str]  # lower-case names
    is_grpc: bool


@dataclass(frozen=True, slots=True)
class Accept:
    rejected_count: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    http_status: int = 503
    message: str = "refused by the script"
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """HTTP: the connection ends without an answer. gRPC: the call ends as CANCELLED."""


@dataclass(frozen=True, slots=True)
class Stall:
    """No answer until `release()` or the end of the server; then the request is accepted."""


Reply = Accept | Refuse | Reset | Stall


class OtlpServer:
    """Listens from `with` to the end of the block; ports are chosen by the system unless given."""

    def __init__(
        self,
        *,
        max_request_bytes: int = 64 << 20,
        grpc_port: int = 0,
        http_port: int = 0,
        credentials: grpc.ServerCredentials | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._max_request_bytes = max_request_bytes
        self._ports = (grpc_port, http_port)
        self._credentials = credentials
        self._ssl_context = ssl_context
        self._changed = threading.Condition()
        self._script: deque[Reply] = deque()
        self._default: Reply = Accept()
        self._received: list[Received] = []
        self._asked_count = 0
        self._released = threading.Event()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.grpc_port = self._start_grpc()
        self.http_port = self._start_http()
        self.grpc_endpoint = f"{'grpcs' if self._credentials else 'grpc'}://127.0.0.1:{self.grpc_port}"
        self.http_endpoint = f"{'https' if self._ssl_context else 'http'}://127.0.0.1:{self.http_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._stack.close()

    def follow(self, *script: Reply, then: Reply | None = None) -> None:
        """Answer the next requests by `script`, one each; afterwards by `then` (default: accept)."""
        with self._changed:
            self._script = deque(script)
            self._default = Accept() if then is None else then

    def release(self) -> None:
        """Let stalled requests go on."""
        self._released.set()

    def received(self, signal: Signal | None = None) -> list[Received]:
        """Return what was accepted so far, in order of arrival."""
        with self._changed:
            return [r for r in self._received if signal is None or r.signal is signal]

    def wait_for(self, count: int, timeout_s: float = 30.0) -> list[Received]:
        """Return the accepted requests once there are `count`; raises TimeoutError after a while."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._received) >= count, timeout_s):
                raise TimeoutError(f"{len(self._received)} of {count} requests arrived")
            return list(self._received)

    def wait_until_asked(self, count: int, timeout_s: float = 30.0) -> None:
        """Return once `count` requests came in, however they were answered."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._asked_count >= count, timeout_s):
                raise TimeoutError(f"{self._asked_count} of {count} requests were asked")

    def answer(self, request: Received) -> Accept | Refuse | Reset:
        """Decide by the script; records what is accepted. For the two servers below."""
        with self._changed:
            self._asked_count += 1
            self._changed.notify_all()
            reply = self._script.popleft() if self._script else self._default
        if isinstance(reply, Stall):
            self._released.wait()
            reply = Accept()
        if isinstance(reply, Accept):
            with self._changed:
                self._received.append(request)
                self._changed.notify_all()
        return reply

    def _start_grpc(self) -> int:
        pool = self._stack.enter_context(ThreadPoolExecutor(_THREADS))
        options = [("grpc.max_receive_message_length", self._max_request_bytes), ("grpc.so_reuseport", 0)]
        server = grpc.server(pool, options=options)
        server.add_generic_rpc_handlers(tuple(_build_grpc_handlers(self)))
        address = f"127.0.0.1:{self._ports[0]}"
        if self._credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, self._credentials)
        server.start()
        self._stack.callback(lambda: server.stop(grace=0).wait())
        return int(port)

    def _start_http(self) -> int:
        server = _HttpServer(("127.0.0.1", self._ports[1]), _HttpHandler)
        server.owner, server.max_request_bytes = self, self._max_request_bytes
        if self._ssl_context is not None:
            server.socket = self._ssl_context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(server.server_close)
        self._stack.callback(server.shutdown)
        return int(server.server_address[1])


def _build_grpc_handlers(owner: OtlpServer) -> Iterator[grpc.GenericRpcHandler]:
    def build_export(signal: Signal) -> Any:
        def export(payload: bytes, context: grpc.ServicerContext) -> Any:
            headers = {k: v for k, v in context.invocation_metadata() if isinstance(v, str)}
            reply = owner.answer(Received(signal, payload, headers, is_grpc=True))
            if isinstance(reply, Accept):
                return _encode_response(signal, reply)
            if isinstance(reply, Reset):
                return context.abort(grpc.StatusCode.CANCELLED, "reset by the script")
            context.set_trailing_metadata(_encode_retry_info(reply))
            return context.abort(reply.code, reply.message)

        return export

    for service, signal in _SERVICES.items():
        method = grpc.unary_unary_rpc_method_handler(build_export(signal))
        yield grpc.method_handlers_generic_handler(service, {"Export": method})


def _encode_response(signal: Signal, reply: Accept) -> bytes:
    if not reply.rejected_count and not reply.message:
        return b""
    if signal is Signal.TRACES:
        traces = ExportTraceServiceResponse()
        traces.partial_success.rejected_spans = reply.rejected_count
        traces.partial_success.error_message = reply.message
        return traces.SerializeToString()
    if signal is Signal.LOGS:
        logs = ExportLogsServiceResponse()
        logs.partial_success.rejected_log_records = reply.rejected_count
        logs.partial_success.error_message = reply.message
        return logs.SerializeToString()
    metrics = ExportMetricsServiceResponse()
    metrics.partial_success.rejected_data_points = reply.rejected_count
    metrics.partial_success.error_message = reply.message
    return metrics.SerializeToString()


def _encode_retry_info(reply: Refuse) -> tuple[tuple[str, bytes], ...]:
    if reply.retry_after_s is None:
        return ()
    delay = Duration()
    delay.FromNanoseconds(int(reply.retry_after_s * 1e9))
    status = status_pb2.Status(code=reply.code.value[0], message=reply.message)
    status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return (("grpc-status-details-bin", status.SerializeToString()),)


class _HttpServer(ThreadingHTTPServer):
    owner: OtlpServer
    max_request_bytes: int
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


class _HttpHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _HttpServer

    def do_POST(self) -> None:
        body = self._read_body()
        signal = _PATHS.get(self.path)
        if signal is None:
            self._reply(404, b"", {})
            return
        if len(body) > self.server.max_request_bytes:
            self._reply(413, b"", {})
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        payload = _decompress(body, headers.get("content-encoding", ""))
        reply = self.server.owner.answer(Received(signal, payload, headers, is_grpc=False))
        if isinstance(reply, Reset):
            self.close_connection = True
        elif isinstance(reply, Accept):
            self._reply(200, _encode_response(signal, reply), {})
        else:
            after = {} if reply.retry_after_s is None else {"Retry-After": f"{reply.retry_after_s:.0f}"}
            error = status_pb2.Status(message=reply.message).SerializeToString()
            self._reply(reply.http_status, error, after)

    def _read_body(self) -> bytes:
        """Read by length or, as some clients send compressed requests, in chunks."""
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = bytearray()
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(body)

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests read what was received, not a log."""


def _decompress(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompress(body)
    return body
