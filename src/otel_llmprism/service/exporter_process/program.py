# One exporter process from start to end: lock, wiring, loop, drain. It ends when the engine is gone and
# everything of it has left, or within the drain time after SIGTERM.
import logging
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.native.control_socket import list_socket_roots, remove_dead_sockets
from otel_llmprism.native.run_folder import RunDescription, check_private, read_run_description
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.exporter_process.control_relay import build_relay
from otel_llmprism.service.exporter_process.loop import ExporterLoop
from otel_llmprism.service.exporter_process.placement import yield_priority
from otel_llmprism.service.exporter_process.settings import ExporterSettings, read_exporter_settings
from otel_llmprism.service.exporter_process.stale_folders import sweep_stale_folders, take_lock
from otel_llmprism.service.exporter_process.wiring import build_loop, build_outbox

_log = logging.getLogger("otel_llmprism")


def main(arguments: list[str]) -> int:
    """Serve one run folder; 0 when it ended in order or another exporter serves it."""
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m otel_llmprism.service.exporter_process RUN_FOLDER\n")
        return 2
    folder = Path(arguments[0])
    try:
        check_private(folder)
        lock = take_lock(folder)
        run = read_run_description(folder)
    except (OSError, ValueError, RuntimeError) as error:
        sys.stderr.write(f"llmprism exporter: cannot serve {folder}: {error}\n")
        return 1
    if lock is None:
        return 0
    _detach()
    try:
        return _serve(folder, run, read_exporter_settings(os.environ))
    finally:
        os.close(lock)


def _detach() -> None:
    """Live in a session of our own: a Ctrl-C meant for the engine must not stop the drain."""
    if os.getpgrp() != os.getpid():
        os.setsid()
    yield_priority()


def _serve(folder: Path, run: RunDescription, settings: ExporterSettings) -> int:
    counters = Counters()
    try:
        outbox = build_outbox(os.environ, settings, counters)
        loop = build_loop(folder, run, os.environ, settings=settings, counters=counters, put=outbox.put)
    except ConfigError as error:
        sys.stderr.write(f"llmprism exporter: {error}\n")
        return 2
    relay = build_relay(run, os.environ)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    if relay is not None:
        relay.start()
    is_engine_gone = False
    while not stop.is_set() and not is_engine_gone:
        is_engine_gone = not _turn_safely(loop, counters)
        if not is_engine_gone:
            stop.wait(settings.poll_s)
    if relay is not None:
        relay.stop()
    loop.finish(is_engine_gone=is_engine_gone)
    outbox.close(time.monotonic() + settings.drain_s)
    if is_engine_gone:
        sweep_stale_folders(folder.parent, time.time())
        shutil.rmtree(folder, ignore_errors=True)
        for root in list_socket_roots(os.environ):
            remove_dead_sockets(root)  # a killed process leaves its control socket
    return 0


def _turn_safely(loop: ExporterLoop, counters: Counters) -> bool:
    """One turn; an error costs what was in hand, is counted and told once, and the next turn goes on."""
    try:
        return loop.turn()
    except Exception as error:  # noqa: BLE001  the exporter outlives what it has no words for
        if not counters.value(LOST, stage="exporter", cause="error"):
            _log.exception("llmprism exporter: lost what was in hand: %s", type(error).__name__)
        counters.add(LOST, stage="exporter", cause="error")
        return True
