# OTLP/gRPC in: TraceService, LogsService and MetricsService hand over the raw request bytes.
# One thread a call, from a bounded pool (docs/adr/0040); nothing is decoded here.
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import grpc

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import KeySelection
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ports import Ingress
from otel_llmprism.receivers.admission import Admission
from otel_llmprism.receivers.auth import BearerToken, load_token
from otel_llmprism.receivers.limits import Gate, IntakeLimits
from otel_llmprism.receivers.listen_address import (
    ListenAddress,
    ListenError,
    bind_socket,
    parse_listen_address,
    warn_if_open,
)
from otel_llmprism.receivers.otlp_answers import Answer, Reply, encode_response, encode_status
from otel_llmprism.receivers.otlp_grpc_deadlines import ReceiveDeadlines
from otel_llmprism.receivers.tls import ServerTlsConfig, build_server_credentials

_SERVICES = {
    "opentelemetry.proto.collector.trace.v1.TraceService": Signal.TRACES,
    "opentelemetry.proto.collector.logs.v1.LogsService": Signal.LOGS,
    "opentelemetry.proto.collector.metrics.v1.MetricsService": Signal.METRICS,
}
_REFUSING_THREADS = 4  # beyond the admitted calls, so that a refusal never waits for a thread
_MAX_STREAMS = 128  # calls at a time on one connection; more wait at the client
_MIN_CLIENT_PING_MS = 10_000
_HANDSHAKE_TIMEOUT_MS = 15_000  # for connections that open and say nothing
_STOP_MARGIN_S = 5.0
_STATUS = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpGrpcConfig:
    endpoint: str = "127.0.0.1:4317"
    limits: IntakeLimits = field(default_factory=IntakeLimits)
    tls: ServerTlsConfig = field(default_factory=ServerTlsConfig)
    token_file: str = ""
    max_connections: int = 1024
    keepalive_time_s: float = 60.0  # silence after which we ask whether the client is still there
    keepalive_timeout_s: float = 20.0


class OtlpGrpcReceiver:
    """A Source; `port` is the one it listens on once started."""

    def __init__(
        self, config: OtlpGrpcConfig, ingress: Ingress, counters: Counters, keys: KeySelection
    ) -> None:
        self._config = config
        self._admission = Admission(ingress, counters, keys, "otlp_grpc")
        self._gate = Gate(config.limits.max_concurrent)
        self._deadlines = ReceiveDeadlines(config.limits.receive_timeout_s, time.monotonic)
        self._token: BearerToken | None = None
        self._server: Any = None
        self._pool: ThreadPoolExecutor | None = None
        self.port = 0

    def start(self) -> None:
        """Listen; raises ConfigError or ListenError, each with the mend."""
        address = parse_listen_address(self._config.endpoint)
        credentials = build_server_credentials(self._config.tls)
        self._token = load_token(self._config.token_file)
        warn_if_open("OTLP/gRPC", address, has_tls=credentials is not None, has_token=self._token is not None)
        threads = self._config.limits.max_concurrent + _REFUSING_THREADS
        pool = ThreadPoolExecutor(threads, thread_name_prefix="otlp-grpc")
        server = grpc.server(pool, options=_list_options(self._config))
        server.add_generic_rpc_handlers(tuple(self._build_handlers()))
        self.port = _bind_server(server, address, credentials)
        server.start()
        self._deadlines.start()
        self._server, self._pool = server, pool

    def stop(self, deadline_ns: int) -> None:
        """Refuse new calls, let the running ones finish until `deadline_ns`, cancel what is left."""
        server, self._server = self._server, None
        if server is None or self._pool is None:
            return
        grace_s = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        server.stop(grace_s).wait(grace_s + _STOP_MARGIN_S)
        self._deadlines.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _build_handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        for service, signal in _SERVICES.items():
            # One message is all that a client sends; as a stream its arrival can be given a deadline.
            method = grpc.stream_unary_rpc_method_handler(partial(self._export, signal))
            yield grpc.method_handlers_generic_handler(service, {"Export": method})

    def _export(self, signal: Signal, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        if self._token is not None and not _is_allowed(self._token, context):
            self._admission.count_refusal("unauthenticated")
            _refuse(context, Answer(Reply.UNAUTHENTICATED, "a valid bearer token is required"))
        if not self._gate.try_enter():
            self._admission.count_refusal("busy")
            why = f"{self._config.limits.max_concurrent} requests are being taken in; send again later"
            retry_s = self._config.limits.retry_after_s
            _refuse(context, Answer(Reply.BUSY, why, retry_after_s=retry_s))
        try:
            payload = self._receive(requests, context)
            if payload is None:
                return b""
            answer = self._admission.admit(signal, payload)
        finally:
            self._gate.leave()
        if answer.reply is not Reply.OK:
            _refuse(context, answer)
        return encode_response(signal, answer)

    def _receive(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes | None:
        """Return the request; None when the call ended without one (hung up, too slow, too large)."""
        try:
            with self._deadlines.watch(context):
                return next(requests)
        except (StopIteration, grpc.RpcError):
            self._admission.count_refusal("not_received")
            return None


def _is_allowed(token: BearerToken, context: grpc.ServicerContext) -> bool:
    for name, value in context.invocation_metadata():
        if name == "authorization":
            return token.allows(value.encode() if isinstance(value, str) else value)
    return False


def _refuse(context: grpc.ServicerContext, answer: Answer) -> NoReturn:
    if answer.retry_after_s > 0:
        context.set_trailing_metadata((("grpc-status-details-bin", encode_status(answer)),))
    context.abort(_STATUS[answer.reply.grpc_code], answer.message)
    raise AssertionError("abort raises")


def _list_options(config: OtlpGrpcConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", config.limits.max_request_bytes),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
        ("grpc.max_allowed_incoming_connections", config.max_connections),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
        ("grpc.so_reuseport", 0),  # a second server on the port is an error, not a lottery
        ("grpc.keepalive_time_ms", round(config.keepalive_time_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(config.keepalive_timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_CLIENT_PING_MS),
    ]


def _bind_server(server: Any, address: ListenAddress, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return int(server.add_insecure_port(str(address)))
        return int(server.add_secure_port(str(address), credentials))
    except RuntimeError as error:
        # gRPC does not say why; a plain socket does.
        with contextlib.closing(bind_socket(address)):
            raise ListenError(f"cannot listen on {address}: {error}") from error
