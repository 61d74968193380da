# CPU burn beside an engine: processes that compute nothing of use on the cores they are told, and end by
# themselves when nobody ends them.
import os
import subprocess
import sys
from collections.abc import Sequence

MAX_BURN_S = 120.0
_BURN = (
    "import sys, time\n"
    "end = time.monotonic() + float(sys.argv[1])\n"
    "while time.monotonic() < end:\n"
    "    sum(range(1000))"
)
# One burner of this niceness leaves an engine's thread on the same core 1 / intensity of it.
_NICENESS = {1.1: 10, 1.3: 5, 2.0: 0}


class CpuBurners:
    """A burner or more on each of `cores`; a thread that shares a core gets about 1 / intensity of it."""

    layer = "host"

    def __init__(self, cores: Sequence[int], max_s: float = MAX_BURN_S) -> None:
        self.target = os.uname().nodename
        self._cores = tuple(cores)
        self._max_s = min(max_s, MAX_BURN_S)
        self._running: list[subprocess.Popen[bytes]] = []

    def prepare(self) -> None:
        """Nothing is needed: Python is here."""

    def start(self, intensity: float) -> None:
        """Begin to burn."""
        for core in self._cores:
            for niceness in choose_niceness(intensity):
                self._running.append(self._start_one(core, niceness))

    def stop(self) -> None:
        """End the burners that were started here."""
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()
        self._running.clear()

    def close(self) -> None:
        self.stop()

    def _start_one(self, core: int, niceness: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-S", "-c", _BURN, str(self._max_s)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.sched_setaffinity(process.pid, {core})
        if niceness:
            os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        return process


def choose_niceness(intensity: float) -> list[int]:
    """Return the niceness of each burner that one core needs."""
    nearest = min(_NICENESS, key=lambda known: abs(known - intensity))
    if intensity < 1.65:
        return [_NICENESS[nearest]]
    return [0] * max(1, round(intensity - 1))
