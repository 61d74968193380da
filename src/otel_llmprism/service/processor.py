# The processor as a process: starts the parts, waits for signals, reloads, drains within the stated time.
# Knows no component: wiring.py joins them.
import logging
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Mapping
from enum import Enum

from otel_llmprism.baseline.expected import stay_on_one_thread
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress_config import Durability
from otel_llmprism.pipeline.loss import count_loss
from otel_llmprism.receivers.auth import load_token
from otel_llmprism.semconv.delivery import CONFIG_FAILING, RELOADS
from otel_llmprism.service.health import HealthServer
from otel_llmprism.service.native_notice import warn_of_twins
from otel_llmprism.service.orders import await_order
from otel_llmprism.service.reload import apply_config
from otel_llmprism.service.settings import ProcessorConfig
from otel_llmprism.service.wiring import build_parts
from otel_llmprism.service.wiring_control import build_service_routes
from otel_llmprism.service.wiring_feed import measure_log

_LOG = logging.getLogger(__name__)
_ROOT_LOG = logging.getLogger("otel_llmprism")
# The pages answer until the very end, so that a probe sees "draining" and not a refused connection.
_HEALTH_GRACE_NS = 1_000_000_000


class Order(Enum):
    STOP = "stop"
    RELOAD = "reload"


class Processor:
    """One thread calls start, reload and stop."""

    def __init__(self, config: ProcessorConfig, environment: Mapping[str, str]) -> None:
        self.counters = Counters()
        self._config = config
        self._environment = environment
        self._unready = "starting"
        self._is_verbose = _ROOT_LOG.level == logging.DEBUG
        self._parts = build_parts(config, environment, self.counters)
        self.control = self._parts.control
        self.health = HealthServer(
            config.service.health,
            self.counters,
            self._find_unready,
            build_service_routes(
                self.control,
                load_token(config.service.control.token_file),
                config.service.health.endpoint,
                self._parts.sentinel.view,
            ),
        )

    def start(self) -> None:
        """Return once everything listens; on failure nothing is left running."""
        self._set_log_level()
        self.health.start()
        try:
            self._parts.runner.start()
        except BaseException:
            self._stop_health()
            raise
        self._unready = ""

    def reload(self, config: ProcessorConfig) -> None:
        """Run by `config` from now on; raises what apply_config raises, with the old one still running."""
        outcome = "unchanged" if config == self._config else "applied"
        apply_config(self._parts, self._config, config, self._environment, self.counters)
        self._config = config
        self._set_log_level()
        self.counters.add(RELOADS, outcome=outcome)
        self.counters.set(CONFIG_FAILING, 0)

    def refuse_reload(self, error: Exception) -> None:
        """Say once that the old configuration goes on."""
        self.counters.add(RELOADS, outcome="refused")
        self.counters.set(CONFIG_FAILING, 1)
        _LOG.error("configuration refused, the old one goes on: %s", " ".join(str(error).split()))

    def stop(self) -> str:
        """Drain within service.shutdown_timeout; return what is left, for a person."""
        self._unready = "draining"
        stuck = self._parts.runner.stop()
        left = self._account_for_rest()
        self._parts.dead_letters.close()
        self._stop_health()
        return f"{left}; did not stop in time: {', '.join(stuck)}" if stuck else left

    def find_port(self, receiver: str) -> int:
        """Return the port that a receiver (`otlp_grpc`, `otlp_http`) listens on; 0 when it does not run."""
        return int(getattr(self._parts.receivers.find(receiver), "port", 0))

    def describe_ports(self) -> str:
        """Return name=port of everything that listens."""
        ports = {name: self.find_port(name) for name in ("otlp_grpc", "otlp_http")}
        ports["health"] = self.health.port
        return " ".join(f"{name}={port}" for name, port in ports.items() if port)

    def _account_for_rest(self) -> str:
        unsent = self._parts.sink.take_unsent()
        if self._config.service.durability is Durability.MEMORY:
            for batch in unsent:
                count_loss(self.counters, "sink", "shutdown", batch.signal, batch.payload)
            return (
                f"{len(unsent)} requests in flight were lost (durability: memory)"
                if unsent
                else "nothing left"
            )
        log_bytes = measure_log(self._config.service)
        if log_bytes == 0:
            return "nothing left"
        folder = self._config.service.log.directory
        return f"{log_bytes} bytes wait in the log {folder} for the next start"

    def _find_unready(self) -> str:
        self._parts.sink.record_gauges()
        return self._unready

    def _set_log_level(self) -> None:
        # -v asks for more than the file does, never for less.
        if not self._is_verbose:
            _ROOT_LOG.setLevel(self._config.service.telemetry.log_level.value.upper())

    def _stop_health(self) -> None:
        self.health.stop(time.monotonic_ns() + _HEALTH_GRACE_NS)


def run_processor(config: ProcessorConfig, load_again: Callable[[], ProcessorConfig]) -> int:
    """Run until SIGTERM or SIGINT, reload on SIGHUP; a second SIGINT ends it at once."""
    orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
    stay_on_one_thread()
    processor = Processor(config, os.environ)
    # Before anything listens: whoever sees the port open may send SIGTERM and expects a drain.
    _listen_to_signals(orders)
    warn_of_twins()
    processor.start()
    _LOG.info("ready: mode=%s %s", config.service.mode.value, processor.describe_ports())
    while await_order(orders) is not Order.STOP:
        try:
            processor.reload(load_again())
            _LOG.info("configuration reloaded")
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the new one, the old one goes on
            processor.refuse_reload(error)
    _LOG.info("stopping, at most %g s", config.service.shutdown_timeout_s)
    _LOG.info("stopped: %s", processor.stop())
    return 0


def _listen_to_signals(orders: "queue.SimpleQueue[Order]") -> None:
    def ask_to_stop(*_: object) -> None:
        # A second SIGTERM is no impatience: supervisors signal a process and then its group.
        signal.signal(signal.SIGINT, _end_at_once)
        orders.put(Order.STOP)

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)
    signal.signal(signal.SIGHUP, lambda *_: orders.put(Order.RELOAD))


def _end_at_once(number: int, _: object) -> None:
    # What was accepted is in the log; only durability: memory loses anything here.
    sys.stderr.write("otel-llmprism: stopped at once by a second interrupt\n")
    sys.stderr.flush()
    os._exit(128 + number)
