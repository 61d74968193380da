# `up` as a process: starts everything, says where it listens, waits for a signal, drains.
# Knows no component: wiring.py joins them.
import logging
import os
import queue
import signal
from collections.abc import Callable, Mapping

from otel_llmprism.baseline.expected import stay_on_one_thread
from otel_llmprism.receivers.listen_address import ListenError, parse_listen_address
from otel_llmprism.service.all_in_one.settings import UpSettings
from otel_llmprism.service.all_in_one.wiring import build_up
from otel_llmprism.service.native_notice import warn_of_twins
from otel_llmprism.service.orders import await_order

_LOGGER = logging.getLogger(__name__)


class AllInOne:
    """One thread calls start and stop."""

    def __init__(self, settings: UpSettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._parts = build_up(settings, environment)

    def start(self) -> None:
        """Return once everything listens; on failure nothing is left running."""
        try:
            self._parts.runner.start()
        except ListenError as error:
            raise ListenError(f"{error} with {self._name_flag(str(error))}") from error

    def stop(self) -> str:
        """Drain within service.shutdown_timeout; return what did not end, for a person."""
        stuck = self._parts.runner.stop()
        self._parts.dead_letters.close()
        return f"did not stop in time: {', '.join(stuck)}" if stuck else "everything is stored"

    def list_addresses(self) -> dict[str, str]:
        """Return what listens where, with the ports in use, and where the data is."""
        config = self._settings.config
        protocols = config.receivers.otlp.protocols
        found = {"page and API": f"http://{_show_address(config.ui.endpoint, self._parts.ui.port)}/"}
        for name, title, receiver in (
            ("otlp_grpc", "OTLP gRPC", protocols.grpc),
            ("otlp_http", "OTLP HTTP", protocols.http),
        ):
            if receiver is not None:
                port = int(getattr(self._parts.receivers.find(name), "port", 0))
                address = _show_address(receiver.endpoint, port)
                found[title] = address if name == "otlp_grpc" else f"http://{address}"
        if self._settings.has_export:
            found["sends on to"] = config.exporters.otlp.endpoint
        return {**found, "data": str(self._settings.data)}

    def _name_flag(self, text: str) -> str:
        protocols = self._settings.config.receivers.otlp.protocols
        flags = {
            "--otlp-grpc": protocols.grpc and protocols.grpc.endpoint,
            "--otlp-http": protocols.http and protocols.http.endpoint,
            "--ui": self._settings.config.ui.endpoint,
        }
        named = [flag for flag, endpoint in flags.items() if endpoint and f" {endpoint}:" in text]
        return f"{named[0] if named else '--otlp-grpc, --otlp-http or --ui'} HOST:PORT"


def run_up(settings: UpSettings, announce: Callable[[str], None]) -> int:
    """Run until SIGTERM, SIGINT or the terminal closes; a second SIGINT ends it at once."""
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    stay_on_one_thread()
    up = AllInOne(settings, os.environ)

    def ask_to_stop(number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signals.put(number)

    # Before anything listens: whoever sees the port open may send SIGTERM and expects a drain.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask_to_stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it outlives the terminal
        signal.signal(signal.SIGHUP, ask_to_stop)
    warn_of_twins()
    up.start()
    addresses = up.list_addresses()
    width = max(map(len, addresses))
    announce("otel-llmprism is up")
    for name, where in addresses.items():
        announce(f"  {name:{width}}  {where}")
    announce("ready")  # what scripts wait for
    await_order(signals)
    _LOGGER.info("stopping, at most %g s", settings.config.service.shutdown_timeout_s)
    _LOGGER.info("stopped: %s", up.stop())
    return 0


def _show_address(endpoint: str, port: int) -> str:
    address = parse_listen_address(endpoint)
    host = "127.0.0.1" if address.host in {"0.0.0.0", "::"} else address.host  # noqa: S104 - compared with
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
