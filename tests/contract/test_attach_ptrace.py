# gdb's way into real Python processes: what runs goes on, with our hooks; what sleeps is let go unharmed.
# Skipped by name where gdb is missing or may not trace.
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_llmprism.native.control_socket import find_sockets

# Prints one line a loop, so that a test sees it going on; checks callables as any program does.
BUSY = """
import sys, threading
def check():
    while True:
        callable(None)
for _ in range(3):
    threading.Thread(target=check, daemon=True).start()
while True:
    for n in range(20000):
        callable(n)
    try:
        sys.stdout.write("x\\n"), sys.stdout.flush()
    except BrokenPipeError:
        break
"""
ASLEEP = "import time\nprint('x', flush=True)\ntime.sleep(600)"


def attach(pid: int, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "otel_llmprism", "attach", str(pid), "--allow-ptrace", *words]
    environment = {**os.environ, "OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "run")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    if "does not permit" in done.stderr:
        pytest.skip("gdb may not trace here (ptrace)")
    if "install gdb 14" in done.stderr:
        assert "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(), "it must have been left alone"
        pytest.skip("this gdb does not know this processor's registers")
    return done


class Victim:
    def __init__(self, code: str, tmp_path: Path) -> None:
        environment = {**os.environ, "OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "run")}
        self.process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
        self.lines = 0
        self._reader = threading.Thread(target=self._count)
        self._reader.start()

    def await_lines(self, count: int) -> None:
        deadline_s = time.monotonic() + 60
        while self.lines < count:
            assert time.monotonic() < deadline_s, "the process does not go on"
            assert self.process.poll() is None, "the process has ended"
            time.sleep(0.02)

    def end(self) -> int:
        self.process.terminate()
        status = self.process.wait(30)
        self._reader.join()
        return status

    def _count(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for _ in stream:
                self.lines += 1


@pytest.fixture
def victims() -> Iterator[list[Victim]]:
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    if sys.version_info >= (3, 14):
        pytest.skip("Python 3.14 has a way of its own")
    started: list[Victim] = []
    yield started
    for victim in started:
        if victim.process.poll() is None:
            victim.end()


def test_a_busy_process_is_attached_to_and_goes_on(victims: list[Victim], tmp_path: Path) -> None:
    victims.append(victim := Victim(BUSY, tmp_path))
    victim.await_lines(3)
    done = attach(victim.process.pid, tmp_path, "--asleep")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{victim.process.pid}  attached, asleep\n"
    assert list(find_sockets(tmp_path / "run")) == [victim.process.pid]
    victim.await_lines(victim.lines + 3)
    again = attach(victim.process.pid, tmp_path)
    assert again.returncode == 1
    assert "instrumented already" in again.stderr
    assert victim.end() == -15


def test_a_process_that_reaches_no_safe_point_is_let_go_unharmed(
    victims: list[Victim], tmp_path: Path
) -> None:
    victims.append(victim := Victim(ASLEEP, tmp_path))
    victim.await_lines(1)
    done = attach(victim.process.pid, tmp_path, "--timeout", "3")
    assert done.returncode == 1
    assert "goes on as before" in done.stderr
    status = Path(f"/proc/{victim.process.pid}/status").read_text(encoding="utf-8")
    assert "TracerPid:\t0" in status
    assert "State:\tS" in status, "it sleeps on, neither stopped nor gone"
    assert victim.end() == -15
