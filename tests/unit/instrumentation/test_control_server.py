# The control socket: who may ask, what is answered, and that nobody can hurt or stall the process with it.
import contextlib
import errno
import json
import mmap
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.instrumentation import control_server, engine_run, process_run
from otel_llmprism.instrumentation.profiler_state import note_profiler_start, note_profiler_stop
from otel_llmprism.instrumentation.step_records import EngineState
from otel_llmprism.native import control_socket
from otel_llmprism.native.control_socket import (
    MAX_REQUEST_BYTES,
    ControlError,
    ask_process,
    find_sockets,
    is_dead,
    list_socket_roots,
    remove_dead_sockets,
)
from otel_llmprism.native.ring_codes import Mode


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    monkeypatch.setattr(engine_run, "start_exporter", lambda _folder, _environment: 0)
    monkeypatch.setattr(process_run, "_absent", {"vllm.gone.Target.method": None})
    yield {"OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "run"), "OTEL_LLMPRISM_RING_SLOTS": "1024"}
    process_run.end_run()


@pytest.fixture
def path(environment: dict[str, str]) -> Path:
    opened = control_server.open_control(environment)
    assert opened is not None
    return opened


def send_raw(path: Path, raw: bytes) -> list[dict[str, Any]]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(raw)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as lines:
            return [json.loads(line) for line in lines]


def test_socket_and_folder_are_this_users_only(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.name == f"{os.getpid()}.sock"
    assert control_server.open_control({}) == path, "once a process"


def test_status_tells_the_run_its_hooks_and_what_was_absent(environment: dict[str, str], path: Path) -> None:
    run = process_run.begin_run("mini", "1", environment=environment)
    assert run is not None
    for _ in range(40):
        run.steps.record_scheduled({"a": 1}, (), EngineState(), 1, 2)
    status = ask_process(path, {"command": "status"})
    assert run.description is not None
    assert status["mode"] == "sentinel"
    assert status["engine"] == run.description.engine_id
    assert status["run"] == run.description.run
    assert status["dropped"] == 0
    assert (status["torch_profiler"], status["cupti"]) == ("not running", "not loaded")
    assert status["absent_hooks"] == ["vllm.gone.Target.method"]
    step = next(hook for hook in status["hooks"] if hook["name"] == "step")
    assert step["calls"] == 40
    assert step["off"] is None
    assert 0 < step["p50_us"] <= step["p99_us"]


class Profiler:
    pass


def test_status_tells_who_else_is_in_the_process(path: Path) -> None:
    profiler = Profiler()
    note_profiler_start(profiler)
    try:
        status = ask_process(path, {"command": "status"})
    finally:
        note_profiler_stop(profiler)
    assert status["torch_profiler"] == "running"
    assert "torch.profiler" in [neighbour["name"] for neighbour in status["neighbours"]]


def test_status_tells_what_is_mapped_into_the_process(path: Path, tmp_path: Path) -> None:
    before = ask_process(path, {"command": "status"})
    libraries = [tmp_path / name for name in ("libToolsInjection64.so", "libcupti.so.13")]
    with contextlib.ExitStack() as stack:
        for library in libraries:
            library.write_bytes(bytes(mmap.PAGESIZE))
            file = stack.enter_context(library.open("rb"))
            stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        status = ask_process(path, {"command": "status"})
    assert status["cupti"] == "loaded"
    assert "Nsight Systems" in [neighbour["name"] for neighbour in status["neighbours"]]
    assert "Nsight Systems" not in [neighbour["name"] for neighbour in before["neighbours"]]


def test_deep_dive_and_off_reach_the_run(environment: dict[str, str], path: Path) -> None:
    run = process_run.begin_run("mini", "1", environment=environment)
    assert run is not None
    assert ask_process(path, {"command": "deep-dive", "steps": 3})["deep_left"] == 3
    off = ask_process(path, {"command": "off"})
    assert off["mode"] == "off"
    assert {hook["off"] for hook in off["hooks"]} == {"asleep"}
    assert process_run.current_run() is None, "a wrapper's one look"
    with pytest.raises(ControlError, match="asleep"):
        ask_process(path, {"command": "deep-dive", "steps": 3})
    assert ask_process(path, {"command": "sentinel"})["mode"] == "sentinel"
    assert process_run.current_run() is run


def test_an_engine_that_started_asleep_begins_its_run_when_woken(
    environment: dict[str, str], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = {**environment, "OTEL_LLMPRISM_MODE": "off"}
    monkeypatch.setattr(os, "environ", asleep)
    assert process_run.begin_run("mini", "1", environment=asleep) is None
    status = ask_process(path, {"command": "status"})
    assert (status["mode"], status["can_begin"]) == ("off", True)
    woken = process_run.wake_run(Mode.SENTINEL, environment=asleep)
    assert woken is not None
    assert process_run.current_run() is woken
    assert woken.is_on
    assert asleep == {**environment, "OTEL_LLMPRISM_MODE": "off"}, "other threads may be reading it"


def test_an_engine_that_has_ended_is_not_begun_again(environment: dict[str, str], path: Path) -> None:
    process_run.begin_run("mini", "1", environment=environment)
    process_run.end_run()
    with pytest.raises(ControlError, match="begins no run"):
        ask_process(path, {"command": "sentinel"})


def test_a_process_that_begins_none_joins_the_folder_it_is_told(
    environment: dict[str, str], path: Path
) -> None:
    begun = engine_run.start_engine_run("mini", "1", environment=environment)
    folder = environment[engine_run.FOLDER_VARIABLE]
    with pytest.raises(ControlError, match="named none to join"):
        ask_process(path, {"command": "sentinel"})
    joined = ask_process(path, {"command": "sentinel", "run_folder": folder})
    assert begun.description is not None
    assert joined["run"] == begun.description.run
    begun.close()


@pytest.mark.parametrize("folder", ["/", "/dev/shm", "relative", 7, "/no/such/folder"])
def test_only_a_private_run_folder_is_joined(path: Path, folder: object) -> None:
    with pytest.raises(ControlError, match="run folder"):
        ask_process(path, {"command": "sentinel", "run_folder": folder})


@pytest.mark.parametrize("steps", [0, -1, 10**9, 1.5, "3", True, None])
def test_absurd_numbers_of_steps_are_refused(path: Path, steps: object) -> None:
    with pytest.raises(ControlError, match="whole number"):
        ask_process(path, {"command": "deep-dive", "steps": steps})


@pytest.mark.parametrize(
    "line",
    [b"", b"status", b"[1]", b"{", b'{"command": 3}', b'{"command": "explode"}', b"\xff\xfe", b"[" * 4000],
)
def test_malformed_lines_are_answered_and_the_next_is_served(path: Path, line: bytes) -> None:
    first, second = send_raw(path, line + b'\n{"command": "status"}\n')
    assert first["ok"] is False
    assert first["error"]
    assert second["ok"] is True


def test_a_line_of_another_version_says_what_to_use(path: Path) -> None:
    (answer,) = send_raw(path, b'{"version": 99, "command": "status"}\n')
    assert "version 1" in answer["error"]


def test_a_line_without_end_is_refused(path: Path) -> None:
    (answer,) = send_raw(path, b"x" * (MAX_REQUEST_BYTES + 1))
    assert "longer than" in answer["error"]


def test_a_client_that_says_nothing_keeps_others_out_only_for_a_while(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "CONNECTION_S", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        assert ask_process(path, {"command": "status"}, timeout_s=10)["ok"]


def test_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = control_socket.Peer(1, os.geteuid() + 1, 1)
    monkeypatch.setattr(control_server, "read_peer", lambda _connection: stranger)
    with pytest.raises(ControlError, match="only this process's user"):
        ask_process(path, {"command": "status"})


def test_sockets_of_dead_processes_are_removed_and_living_ones_stay(path: Path) -> None:
    dead = path.parent / "999999999.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(dead))
    (path.parent / "notes.txt").write_text("mine", encoding="utf-8")
    assert is_dead(dead)
    assert remove_dead_sockets(path.parent) == 1
    assert find_sockets(path.parent) == {os.getpid(): path}
    assert (path.parent / "notes.txt").exists()


def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    assert control_server.open_control({"OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "open")}) is None
    assert control_server.open_control({"OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "open")}) is None
    assert len(caplog.records) == 1, "said once"


def test_where_no_thread_can_be_started_no_socket_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert control_server.open_control({"OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "run")}) is None
    assert list((tmp_path / "run").iterdir()) == []


def test_a_path_too_long_for_the_kernel_works(tmp_path: Path) -> None:
    root = tmp_path / ("long" * 30)
    opened = control_server.open_control({"OTEL_LLMPRISM_RUNTIME_DIR": str(root)})
    assert opened is not None
    assert ask_process(opened, {"command": "status"})["pid"] == os.getpid()


def test_a_forked_child_neither_answers_nor_removes_the_socket(path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        control_server.close_control()
        os._exit(0 if control_server._server is None and path.exists() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert ask_process(path, {"command": "status"})["pid"] == os.getpid()


def test_a_process_that_ends_removes_its_socket(tmp_path: Path) -> None:
    script = """
import sys
from otel_llmprism.instrumentation.control_server import open_control
print(open_control({"OTEL_LLMPRISM_RUNTIME_DIR": sys.argv[1]}))
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "run"], capture_output=True, check=True)
    path = Path(done.stdout.decode().strip())
    assert path.parent.is_dir()
    assert not path.exists()


class ShortListener(socket.socket):
    """One whose process has no descriptor left when the first client comes."""

    is_short = True

    def accept(self) -> tuple[socket.socket, Any]:
        if self.is_short:
            self.is_short = False
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


def test_a_process_without_descriptors_for_a_moment_can_be_asked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "_SHORTAGE_S", 0.01)
    path = tmp_path / f"{os.getpid()}.sock"
    listener = ShortListener(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    server = control_server.ControlServer((listener, path))
    try:
        assert ask_process(path, {"command": "status"})["pid"] == os.getpid()
    finally:
        server.close()


def test_closing_ends_the_thread(path: Path) -> None:
    control_server.close_control()
    assert not path.exists()
    assert "llmprism-control" not in [thread.name for thread in threading.enumerate()]


def test_roots_follow_the_environment() -> None:
    assert list_socket_roots({"OTEL_LLMPRISM_RUNTIME_DIR": "/x"}) == [Path("/x")]
    assert list_socket_roots({"XDG_RUNTIME_DIR": "/run/user/7"}, 7) == [
        Path("/run/user/7/llmprism"),
        Path("/dev/shm/llmprism-7"),
    ]
