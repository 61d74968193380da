# Starts sink, system and client as separate processes, drives one measured run, and ends them by pid.
# Measures the user + system CPU of the system's whole process tree between warm-up and the last arrival.
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from relay_payload import SPANS_PER_REQUEST
from relay_systems import Setup

HERE = Path(__file__).parent
ARRIVAL_TIMEOUT_S = 60.0
POLL_S = 0.05
PORT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    rate: float  # requests a second; 0 = as fast as the client's in-flight bound allows
    count: int
    warm_up: int


@dataclass(frozen=True, slots=True)
class Result:
    cpu_us_per_span: float
    wall_s: float
    late_s: float
    retried: int
    delays_ns: list[int] = field(repr=False)
    last_payload: bytes = field(repr=False)
    peak_rss_mib: float = 0.0

    @property
    def requests_per_s(self) -> float:
        return len(self.delays_ns) / self.wall_s


class Peer:
    """A child that answers each line on stdin with one JSON line on stdout."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.read()


def measure(
    build_command: Callable[[Setup], list[str]] | None,
    load: Load,
    *,
    is_durable: bool = False,
    compression: str = "none",
    is_enriching: bool = True,
) -> Result:
    """Run the system under load and return what it cost; no system (None) sends straight to the sink."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-relay-")))
        sink = Peer(stack.enter_context(_run_python("relay_sink.py")))
        target = f"127.0.0.1:{sink.read()['port']}"
        tree: psutil.Process | None = None
        if build_command is not None:
            setup = Setup(_free_port(), _free_port(), target, folder, is_durable, compression, is_enriching)
            tree = psutil.Process(stack.enter_context(_run_system(build_command(setup), folder)).pid)
            target = f"127.0.0.1:{setup.port}"
            _await_port(setup.port, tree, folder)
        client = Peer(stack.enter_context(_run_python("relay_client.py", target, compression)))
        client.read()
        return _measure_phases(client, sink, tree, load, folder)


def _measure_phases(
    client: Peer, sink: Peer, tree: psutil.Process | None, load: Load, folder: Path
) -> Result:
    client.ask(f"run {load.rate} {load.warm_up}")
    _await_arrivals(sink, load.warm_up)
    sink.ask(f"report {folder / 'warm-up'}")
    before_s = sum_cpu_s(tree)
    sent = client.ask(f"run {load.rate} {load.count}")
    _await_arrivals(sink, load.warm_up + load.count)
    after_s = sum_cpu_s(tree)
    rss_mib = _sum_rss_mib(tree)
    report = sink.ask(f"report {folder / 'last'}")
    if sent["failed"] or report["requests"] != load.warm_up + load.count:
        raise RuntimeError(f"requests were lost or doubled: {sent}, {report['requests']} arrived")
    return Result(
        (after_s - before_s) * 1e6 / (load.count * SPANS_PER_REQUEST),
        sent["wall_s"],
        sent["late_s"],
        sent["retried"],
        report["delays_ns"],
        (folder / "last").read_bytes(),
        rss_mib,
    )


def sum_cpu_s(tree: psutil.Process | None) -> float:
    """Return user + system seconds of a process, its living descendants and those it has reaped."""
    if tree is None:
        return 0.0
    members = [tree, *tree.children(recursive=True)]
    times = [member.cpu_times() for member in members]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def _sum_rss_mib(tree: psutil.Process | None) -> float:
    if tree is None:
        return 0.0
    return sum(m.memory_info().rss for m in [tree, *tree.children(recursive=True)]) / (1 << 20)


def _await_arrivals(sink: Peer, count: int) -> None:
    deadline = time.monotonic() + ARRIVAL_TIMEOUT_S
    while (arrived := sink.ask("report")["requests"]) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{arrived} of {count} requests arrived")
        time.sleep(POLL_S)


@contextmanager
def _run_python(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(HERE / script), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        _end(process)


@contextmanager
def _run_system(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "system.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        _end(process)


def _end(process: subprocess.Popen[Any]) -> None:
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_port(port: int, tree: psutil.Process, folder: Path) -> None:
    deadline = time.monotonic() + PORT_TIMEOUT_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if not tree.is_running() or tree.status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(POLL_S)
    raise RuntimeError("the system does not listen:\n" + (folder / "system.log").read_text()[-4000:])
