# An engine whose launcher forks its core and spawns its worker, all asleep at first: each has a socket of its
# own, one `sentinel` to any of them puts all into one run, and none keeps another's socket open.
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.cli.engine_control import command_engine, find_engine
from otel_llmprism.native.control_socket import find_sockets

LAUNCHER = """
import os, subprocess, sys, time, warnings
from otel_llmprism.instrumentation import engine_run, process_run
from otel_llmprism.instrumentation.step_records import EngineState
engine_run.start_exporter = lambda folder, environment: 0
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 and above, of a fork beside our thread
WORKER = '''
import time
from otel_llmprism.instrumentation import process_run
process_run.join_run("worker")
time.sleep(600)
'''
process_run.begin_run("vllm", "1")
def schedule():
    while True:
        run = process_run.current_run() or process_run.join_run("engine-core")
        if run is not None:
            run.steps.record_scheduled({"a": 1}, (), EngineState(), 1, 2)
        time.sleep(0.005)
if os.fork() == 0:
    schedule()
worker = subprocess.Popen([sys.executable, "-c", WORKER])
worker.wait()
"""


def await_true(check: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    monkeypatch.setenv("OTEL_LLMPRISM_RUNTIME_DIR", str(tmp_path))
    environment = {**os.environ, "OTEL_LLMPRISM_MODE": "off", "OTEL_LLMPRISM_RING_SLOTS": "1024"}
    process = subprocess.Popen([sys.executable, "-c", LAUNCHER], env=environment, start_new_session=True)
    try:
        await_true(lambda: len(find_sockets(tmp_path)) == 3)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask_all(pid: int, command: str, **more: object) -> dict[int, dict[str, Any]]:
    return command_engine(find_engine(pid), {"command": command, **more})


def test_one_sentinel_puts_forked_and_spawned_processes_into_one_run(
    launcher: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    pids = set(find_sockets(tmp_path))
    core_or_worker = max(pids - {launcher.pid})
    assert {answer["mode"] for answer in ask_all(core_or_worker, "status").values()} == {"off"}
    woken = ask_all(core_or_worker, "sentinel")
    assert set(woken) == pids
    assert {answer["mode"] for answer in woken.values()} == {"sentinel"}
    assert len({answer["run"] for answer in woken.values()}) == 1
    await_true(lambda: [a for a in ask_all(launcher.pid, "status").values() if a["schedules"]])
    (core,) = [pid for pid, answer in ask_all(launcher.pid, "status").items() if answer["schedules"]]
    ask_all(launcher.pid, "deep-dive", steps=3)
    await_true(lambda: ask_all(launcher.pid, "status")[core]["deep_left"] == 0)


def test_a_killed_launchers_socket_is_dead_although_its_children_live(
    launcher: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    children = set(find_sockets(tmp_path)) - {launcher.pid}
    launcher.kill()
    launcher.wait()
    for pid in children:
        assert launcher.pid not in ask_all(pid, "status")
        assert ask_all(pid, "status")[pid]["ok"]
