# `attach`: which way a process allows, what is refused with what mend, and what an attached process is left
# with. The interpreter's own way in is injected, since it needs Python 3.14.
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_llmprism
from otel_llmprism.cli.attach import attach_to
from otel_llmprism.cli.attach_gdb import AttachError, _explain, build_gdb_script, run_in_process
from otel_llmprism.cli.attach_script import AttachFolder
from otel_llmprism.cli.attach_target import (
    Target,
    find_python_version,
    has_remote_debug,
    look_at_target,
    refuse,
)
from otel_llmprism.config.errors import ConfigError
from otel_llmprism.native.control_socket import ask_process, find_sockets

PYTHON_314 = Target(7, os.geteuid(), (3, 14), has_remote_debug=True)
WAITING = "input()"


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "run")}
    with subprocess.Popen([sys.executable, "-c", WAITING], stdin=subprocess.PIPE, env=environment) as process:
        yield process
        process.communicate(b"\n")


@pytest.mark.parametrize(
    ("target", "allows_ptrace", "says"),
    [
        (Target(7, 0, None, has_remote_debug=True), True, "no Python that we can see"),
        (Target(7, 0, (3, 9), has_remote_debug=True), True, "3.11 or later"),
        (Target(7, 0, (3, 12), has_remote_debug=True), False, "--allow-ptrace"),
        (Target(7, 0, (3, 12), has_remote_debug=True), False, "opentelemetry-instrument"),
        (Target(7, 0, (3, 14), has_remote_debug=False), True, "remote debugging disabled"),
        (Target(7, 0, (3, 15), has_remote_debug=True), True, "python3.15 -m otel_llmprism attach 7"),
    ],
)
def test_what_is_refused_names_what_to_do_instead(target: Target, allows_ptrace: bool, says: str) -> None:
    assert says in refuse(target, allows_ptrace=allows_ptrace, running=(3, 14))


def test_a_sound_way_in_is_not_refused() -> None:
    assert refuse(PYTHON_314, allows_ptrace=False, running=(3, 14)) == ""
    assert refuse(Target(7, 0, (3, 11), has_remote_debug=True), allows_ptrace=True, running=(3, 14)) == ""


def test_this_python_is_recognised(waiting: subprocess.Popen[bytes]) -> None:
    target = look_at_target(waiting.pid)
    assert target == Target(waiting.pid, os.geteuid(), sys.version_info[:2], has_remote_debug=True)


def test_no_such_process_and_this_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="no process"):
        look_at_target(4194304999)
    with pytest.raises(ConfigError, match="itself"):
        look_at_target(os.getpid())


@pytest.mark.parametrize(
    ("program", "maps", "version"),
    [
        ("/usr/bin/python3.14", "", (3, 14)),
        ("/opt/engine", "7f00 r-xp /usr/lib/libpython3.13.so.1.0\n", (3, 13)),
        ("/usr/bin/python3", "7f00 r-xp /usr/lib/python3.12/lib-dynload/_ssl.so\n", (3, 12)),
        ("/usr/bin/perl", "7f00 r-xp /usr/lib/libc.so.6\n", None),
    ],
)
def test_the_version_is_read_from_program_and_libraries(
    tmp_path: Path, program: str, maps: str, version: tuple[int, int] | None
) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "exe").symlink_to(program)
    (folder / "maps").write_text(maps, encoding="utf-8")
    assert find_python_version(7, tmp_path) == version
    assert find_python_version(8, tmp_path) is None


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["python3", "-m", "vllm"], True),
        (["python3", "-X", "disable_remote_debug"], False),
        (["python3", "-Xdisable-remote-debug"], False),
    ],
)
def test_a_switched_off_remote_debugging_is_seen(tmp_path: Path, words: list[str], allowed: bool) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "cmdline").write_bytes("\0".join(words).encode())
    assert has_remote_debug(0, tmp_path) is allowed


def test_the_interpreters_own_way_runs_our_lines_and_hooks_are_installed_asleep(
    tmp_path: Path,
) -> None:
    """The fake remote_exec does what 3.14 does: it runs the file, in a process of its own here."""
    environment = {**os.environ, "OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "run")}
    started: list[subprocess.Popen[bytes]] = []

    def remote_exec(pid: int, script: str) -> None:
        assert pid == PYTHON_314.pid
        code = f"exec(open({script!r}).read()); assert 'otel_llmprism' not in globals(); {WAITING}"
        started.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env=environment))

    try:
        attach_to(PYTHON_314, 30.0, remote_exec)
        ((pid, path),) = find_sockets(tmp_path / "run").items()
        status = ask_process(path, {"command": "status"})
        assert (pid, status["mode"], status["can_begin"]) == (started[0].pid, "off", True)
    finally:
        for process in started:
            process.communicate(b"\n")
    assert not find_sockets(tmp_path / "run")


@pytest.mark.parametrize(
    ("error", "says"), [(PermissionError(), "CAP_SYS_PTRACE"), (RuntimeError("too old"), "too old")]
)
def test_an_interpreter_that_refuses_is_passed_on_with_a_mend(error: Exception, says: str) -> None:
    folders: list[Path] = []

    def remote_exec(_pid: int, script: str) -> None:
        folders.append(Path(script).parent)
        raise error

    with pytest.raises(AttachError, match=says):
        attach_to(PYTHON_314, 1.0, remote_exec)
    assert not folders[0].exists(), "nothing is left behind"


def test_a_process_that_says_why_not_is_quoted_with_a_mend() -> None:
    def remote_exec(_pid: int, script: str) -> None:
        (Path(script).parent / "report").write_text("ModuleNotFoundError: wrapt", encoding="utf-8")

    with pytest.raises(AttachError, match=r"cannot be instrumented: ModuleNotFoundError: wrapt; install"):
        attach_to(PYTHON_314, 5.0, remote_exec)


def test_silence_is_told_and_the_script_stays_for_a_late_answer() -> None:
    folders: list[Path] = []

    def remote_exec(_pid: int, script: str) -> None:
        folders.append(Path(script).parent)

    with pytest.raises(AttachError, match="may still answer later"):
        attach_to(PYTHON_314, 0.0, remote_exec)
    assert (folders[0] / "script.py").exists()
    for path in folders[0].iterdir():
        path.unlink()
    folders[0].rmdir()


def test_the_script_is_its_users_only_and_needs_no_installed_package(tmp_path: Path) -> None:
    folder = AttachFolder(os.geteuid())
    try:
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()} == {0o600}
        root = str(Path(otel_llmprism.__file__).parents[1])
        assert repr(root) in (folder.path / "script.py").read_text(encoding="utf-8")
        compile(folder.starter, "starter", "eval")
    finally:
        folder.remove()
    assert not folder.path.exists()


def test_a_process_that_is_told_to_disable_us_reports_it(tmp_path: Path) -> None:
    report = tmp_path / "report"
    script = f"from otel_llmprism.instrumentation.attached import install_late; install_late({str(report)!r})"
    environment = {**os.environ, "OTEL_LLMPRISM_DISABLED": "true"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    assert "disabled" in report.read_text(encoding="utf-8")


def test_gdb_waits_for_the_call_that_only_the_interpreter_makes() -> None:
    script = build_gdb_script("f('x\\n')", "x86_64")
    assert "tbreak *PyCallable_Check if $rdi == 0" in script
    assert "PyRun_SimpleString)(\"f('x\\\\n')\")" in script
    assert script.index("$xmm15") < script.index("call "), "what this gdb cannot do is found out before"
    assert "$x0 == 0" in build_gdb_script("f()", "aarch64")
    with pytest.raises(ConfigError, match="riscv64"):
        build_gdb_script("f()", "riscv64")


def test_gdb_that_is_not_there_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="needs gdb"):
        run_in_process(1, "f()", tmp_path, 1.0)


@pytest.mark.parametrize(
    ("said", "explained"),
    [
        ("ptrace: Operation not permitted.", "CAP_SYS_PTRACE"),
        ("Couldn't write extended state status: Bad address.", "gdb 14"),
        ('No symbol "Py_AddPendingCall" in current context.', "shows no symbols"),
        ("x\nsomething odd\n", "something odd"),
        ("", "said nothing"),
    ],
)
def test_what_gdb_says_is_explained(said: str, explained: str) -> None:
    assert explained in _explain(said)
    assert "goes on as before" in _explain(said)
