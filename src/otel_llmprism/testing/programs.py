# Real programs for tests: started with a log file each, awaited by what they do, ended by pid. What comes out
# of a `with Programs(...)` block is no process of ours; knows no particular program.
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

POLL_S = 0.02
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
LOG_TAIL_BYTES = 4000
# Of the caller's environment only this: a shell's OTEL_* must not steer a test, nor a test fill a home.
INHERITED = ("PATH", "LANG", "TMPDIR")

T = TypeVar("T")


class ProgramError(Exception):
    """A program did not do what the test waits for."""


def find_free_port() -> int:
    """Return a loopback TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(check: Callable[[], T | None], why: str, timeout_s: float = START_TIMEOUT_S) -> T:
    """Return the first true answer of `check`; raises ProgramError(why) after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise ProgramError(f"waited {timeout_s:.0f} s in vain: {why}")
        time.sleep(POLL_S)
    return answer


@dataclass(frozen=True, slots=True)
class Program:
    """One started process; its standard output and errors go to `log`."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def read_log(self) -> str:
        return self.log.read_text(errors="replace")

    def await_port(self, port: int) -> Self:
        """Return once it listens; raises ProgramError at once when it ended instead."""

        def is_up() -> bool:
            if self.process.poll() is not None:
                raise ProgramError(f"{self.name} ended with {self.process.returncode}:\n{self._read_tail()}")
            return is_listening(port)

        wait_until(is_up, f"{self.name} does not listen on {port}:\n{self._read_tail()}")
        return self

    def kill(self) -> None:
        """End it as a power cut of the process would: nothing of it runs any more."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask with SIGTERM and return the exit status; raises ProgramError when it is stuck."""
        self.process.terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Return the exit status once it ended by itself; raises ProgramError when it does not."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProgramError(
                f"{self.name} did not end in {timeout_s:.0f} s:\n{self._read_tail()}"
            ) from None

    def _read_tail(self) -> str:
        return self.read_log()[-LOG_TAIL_BYTES:]


class Programs:
    """Starts programs in sessions of their own and leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in reversed(self.started):
            self._end(program)

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> Program:
        """Start `command` with a clean environment plus `environment`."""
        log = self._folder / f"{len(self.started):02d}-{name}.log"
        inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
        inherited["HOME"] = str(self._folder)
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=inherited | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        program = Program(name, process, log)
        self.started.append(program)
        return program

    def _end(self, program: Program) -> None:
        """Stop the program, then whatever it left in its session (the session's id is its pid)."""
        if program.process.poll() is None:
            program.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.process.wait(5.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.process.wait()
