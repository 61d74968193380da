# One exporter process from start to end: lock, wiring, loop, drain. It ends when the engine is gone and
# everything of it has left, or within the drain time after SIGTERM.
import fcntl
import logging
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.native.run_folder import RunDescription, check_private, read_run_description
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.service.exporter_process.settings import ExporterSettings, read_exporter_settings
from otel_llmprism.service.exporter_process.wiring import build_loop, build_outbox, lower_priority

_LOCK_FILE = "exporter.lock"
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
        lock = _take_lock(folder)
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


def _take_lock(folder: Path) -> int | None:
    descriptor = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _detach() -> None:
    """Live in a session of our own: a Ctrl-C meant for the engine must not stop the drain."""
    if os.getpgrp() != os.getpid():
        os.setsid()
    lower_priority()


def _serve(folder: Path, run: RunDescription, settings: ExporterSettings) -> int:
    counters = Counters()
    try:
        outbox = build_outbox(os.environ, settings, counters)
    except ConfigError as error:
        sys.stderr.write(f"llmprism exporter: {error}\n")
        return 2
    loop = build_loop(folder, run, os.environ, settings=settings, outbox=outbox, counters=counters)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    is_engine_gone = False
    while not stop.is_set() and not is_engine_gone:
        is_engine_gone = not loop.turn()
        if not is_engine_gone:
            stop.wait(settings.poll_s)
    loop.finish(is_engine_gone=is_engine_gone)
    outbox.close(time.monotonic() + settings.drain_s)
    if is_engine_gone:
        shutil.rmtree(folder, ignore_errors=True)
    return 0
