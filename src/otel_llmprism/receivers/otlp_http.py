# OTLP/HTTP in, on /v1/traces, /v1/logs and /v1/metrics: configuration, start and stop.
# What a request goes through is in otlp_http_app.py.
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.native.otlp import KeySelection
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ports import Ingress
from otel_llmprism.receivers.admission import Admission
from otel_llmprism.receivers.asgi_listener import AsgiListener
from otel_llmprism.receivers.auth import load_token
from otel_llmprism.receivers.limits import MIB, IntakeLimits
from otel_llmprism.receivers.listen_address import parse_listen_address, warn_if_open
from otel_llmprism.receivers.otlp_http_app import OtlpHttpApp
from otel_llmprism.receivers.tls import ServerTlsConfig, build_ssl_context


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpHttpConfig:
    endpoint: str = "127.0.0.1:4318"
    limits: IntakeLimits = field(default_factory=IntakeLimits)
    tls: ServerTlsConfig = field(default_factory=ServerTlsConfig)
    token_file: str = ""
    max_json_bytes: int = 4 * MIB  # measured: as objects, JSON takes up to 90 times its size

    def __post_init__(self) -> None:
        """Refuse what could never serve a request."""
        if self.max_json_bytes < 1:
            raise ConfigError("max_json_bytes must be at least 1")


class OtlpHttpReceiver:
    """A Source; `port` is the one it listens on once started."""

    def __init__(
        self, config: OtlpHttpConfig, ingress: Ingress, counters: Counters, keys: KeySelection
    ) -> None:
        self._config = config
        self._admission = Admission(ingress, counters, keys, "otlp_http")
        self._listener: AsgiListener | None = None
        self._workers: ThreadPoolExecutor | None = None
        self.port = 0

    def start(self) -> None:
        """Listen; raises ConfigError or ListenError, each with the mend."""
        address = parse_listen_address(self._config.endpoint)
        context = build_ssl_context(self._config.tls)
        token = load_token(self._config.token_file)
        warn_if_open("OTLP/HTTP", address, has_tls=context is not None, has_token=token is not None)
        limits = self._config.limits
        workers = ThreadPoolExecutor(limits.max_concurrent, thread_name_prefix="otlp-http")
        app = OtlpHttpApp(self._admission, limits, token, workers, self._config.max_json_bytes)
        listener = AsgiListener(app, address, name="otlp-http", ssl_context=context)
        listener.start()
        self.port = listener.port
        self._listener, self._workers = listener, workers

    def stop(self, deadline_ns: int) -> None:
        """Accept nothing more, let running requests finish until `deadline_ns`, close what is left."""
        if self._listener is None or self._workers is None:
            return
        self._listener.stop(deadline_ns)
        self._workers.shutdown(wait=False, cancel_futures=True)
