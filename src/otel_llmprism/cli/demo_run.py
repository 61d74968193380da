# The demo's processes: `up`, then an engine, then what the query API says. Every process that is
# started here is ended here, by its handle.
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from otel_llmprism.cli.demo_engine import DemoEngine, run_engine
from otel_llmprism.cli.demo_report import DemoReport, tell_finding
from otel_llmprism.semconv.ledger_intake import LEDGER_STEPS
from otel_llmprism.semconv.step import SPAN_STEP

_START_S, _SETTLE_S, _STOP_S = 30.0, 15.0, 20.0
_POLL_S = 0.25
_RECENT_S = 10
_PORTS = {"otlp_grpc": 4317, "otlp_http": 4318, "ui": 8317}
_PORT_TRIES = 3


@dataclass(frozen=True, slots=True)
class DemoSettings:
    folder: Path
    engine: DemoEngine
    stays: bool


class PortTakenError(RuntimeError):
    """Another program took a port between our look at it and `up`."""


def run_demo(settings: DemoSettings, show: Callable[[DemoReport], None], progress: TextIO) -> DemoReport:
    """Run everything, show the report, and with `stays` keep the page up until Ctrl-C."""
    for _ in range(_PORT_TRIES - 1):
        with contextlib.suppress(PortTakenError):
            return run_once(settings, show, progress)
    return run_once(settings, show, progress)


def run_once(settings: DemoSettings, show: Callable[[DemoReport], None], progress: TextIO) -> DemoReport:
    """Run everything on ports that are free now; PortTakenError when one is taken meanwhile."""
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ports = {name: choose_port(port) for name, port in _PORTS.items()}
    url = f"http://127.0.0.1:{ports['ui']}"
    log_path = settings.folder / "up.log"
    with log_path.open("w", encoding="utf-8") as log, start_up(settings.folder, ports, log) as up:
        wait_until_ready(up, log_path)
        watch = FindingWatch(url, progress, settings.engine.trigger)
        engine = run_engine(settings.engine, settings.folder, ports["otlp_grpc"], progress, watch.look)
        report = read_report(url, engine, settings.engine.fault)
        show(report)
        if settings.stays:
            progress.write("The page stays up; Ctrl-C ends it.\n")
            with contextlib.suppress(KeyboardInterrupt):
                up.wait()
    return report


def choose_port(preferred: int) -> int:
    """Return `preferred` when it is free, else any free port."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise RuntimeError("no free port on 127.0.0.1")


@contextlib.contextmanager
def start_up(folder: Path, ports: dict[str, int], log: TextIO) -> Iterator[subprocess.Popen[bytes]]:
    """Run `otel-llmprism up` for as long as the block lasts."""
    command = [sys.executable, "-m", "otel_llmprism", "up", "--data", str(folder / "data")]
    for name, port in ports.items():
        command += [f"--{name.replace('_', '-')}", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(up: subprocess.Popen[bytes], log_path: Path) -> None:
    """Return once `up` says so; raise with the end of the log when it does not."""
    # Its own word, not an answer at the address: that may come from another `up` that was faster.
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and up.poll() is None:
        if "ready" in log_path.read_text(encoding="utf-8").splitlines():
            return
        time.sleep(_POLL_S)
    tail = log_path.read_text(encoding="utf-8").strip().splitlines()[-1:] or ["it said nothing"]
    kind = PortTakenError if "cannot listen on" in tail[0] else RuntimeError
    raise kind(f"`otel-llmprism up` did not start: {tail[0]}; its log is {log_path}")


class FindingWatch:
    """Tells each finding once, as soon as the API knows it, and the engine when it may break."""

    def __init__(self, url: str, progress: TextIO, trigger: Path | None = None) -> None:
        self._trigger = trigger
        self._url = url
        self._progress = progress
        self._told: set[str] = set()
        self._began_s = time.monotonic()

    def look(self) -> None:
        if self._trigger is not None and is_watching(self._url):
            self._trigger.touch()
            self._trigger = None
        for finding in list_findings(self._url):
            if finding["id"] not in self._told:
                self._told.add(finding["id"])
                after_s = time.monotonic() - self._began_s
                start = "\r\x1b[K" if self._progress.isatty() else ""
                self._progress.write(f"{start}[{after_s:.0f} s] {tell_finding(finding)}\n")
                self._progress.write(f"{' ' * 7}{self._url}/finding/{finding['id']}\n")
                self._progress.flush()


def is_watching(url: str) -> bool:
    """Return whether some engine is held against limits by now: a model alone raises no alarm."""
    base = f"{url}/api/llmprism/v1/engines"
    try:
        known = [engine for engine in ask(base)["engines"] if engine["state"] == "watching"]
        names = [urllib.parse.quote(engine["id"], safe="") for engine in known]
        series = [ask(f"{base}/{name}/series?seconds={_RECENT_S}")["blocks"] for name in names]
    except (urllib.error.URLError, TimeoutError):
        return False
    return any(block["upper_s"] is not None for blocks in series for block in blocks)


def list_findings(url: str) -> list[dict[str, Any]]:
    """Return all findings, most likely cause first; none where nobody looks for any."""
    try:
        found: list[dict[str, Any]] = ask(f"{url}/api/llmprism/v1/findings")["findings"]
    except (urllib.error.URLError, TimeoutError):
        return []
    return sorted(found, key=lambda one: -(one.get("confidence") or 0.0))


def read_report(url: str, engine: dict[str, Any], fault: str = "none") -> DemoReport:
    """Ask until the ledger has every step the engine made, or what comes has settled."""
    deadline = time.monotonic() + _SETTLE_S
    steps = 0
    while time.monotonic() < deadline:
        live = ask(f"{url}/api/llmprism/v1/live")
        steps = int(sum(entry["value"] for entry in live["counters"] if entry["name"] == LEDGER_STEPS))
        if steps >= int(engine.get("steps", 0)):
            break
        time.sleep(_POLL_S)
    services = ask(f"{url}/api/llmprism/v1/services")["services"]
    found = ask(f"{url}/api/llmprism/v1/traces?operation={SPAN_STEP}&limit=1")["traces"]
    trace = found[0]["traceId"] if found else None
    lost = ask(f"{url}/api/llmprism/v1/live")["lost"]
    names = [service["name"] for service in services]
    return DemoReport(url, steps, engine, names, trace, lost, list_findings(url), fault)


def ask(url: str) -> dict[str, Any]:
    """Return one answer of the query API on this machine."""
    with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - our own loopback address
        answer: dict[str, Any] = json.load(response)
    return answer
