# A link between two ranks as between two hosts: a veth pair into a network namespace, throttled by a token
# bucket. Their names tell who made them, so that those of a run that crashed are found and removed.
import os
import subprocess
import time
from itertools import pairwise
from pathlib import Path

from otel_llmprism.testing.faults.fault import UnavailableError, find_program

_PREFIX = "prism"
_NAMESPACES = Path("/var/run/netns")
_BURST = "32kbit"
_LATENCY = "400ms"  # as much waits in the queue; more is dropped and sent again
_WINDOWS, _WINDOW_S = 10, 0.05
LEAST_BYTES_PER_S = 2_000.0


class LinkThrottle:
    """Rank 0 stands here at `address`, the other ranks in `namespace`; `start` slows what goes both ways.

    The rate is 1 / intensity of what goes one way while the ranks are busy.
    """

    layer = "communication"

    def __init__(self, target: str, number: int = 0) -> None:
        self.target = target
        self.namespace = f"{_PREFIX}{os.getpid()}n{number}"
        subnet = f"10.{200 + number % 50}.{os.getpid() % 250}"
        self.address = f"{subnet}.1"
        self._there = f"{subnet}.2"
        self._here_name, self._there_name = f"{_PREFIX}{os.getpid()}a{number}", "rank"
        self._is_made = False

    def prepare(self) -> None:
        """Make namespace and link."""
        self._is_made = True
        self._run("ip", "netns", "add", self.namespace)
        self._run("ip", "link", "add", self._here_name, "type", "veth", "peer", "name", self._there_name)
        self._run("ip", "link", "set", self._there_name, "netns", self.namespace)
        self._run("ip", "addr", "add", f"{self.address}/30", "dev", self._here_name)
        self._run("ip", "link", "set", self._here_name, "up")
        there = ("ip", "netns", "exec", self.namespace, "ip")
        self._run(*there, "addr", "add", f"{self._there}/30", "dev", self._there_name)
        self._run(*there, "link", "set", self._there_name, "up")
        self._run(*there, "link", "set", "lo", "up")
        find_program("tc", "iproute2")

    def start(self, intensity: float) -> None:
        """Throttle both directions."""
        rate = max(LEAST_BYTES_PER_S, self._measure_peak() / intensity)
        bucket = ("tbf", "rate", f"{round(rate * 8)}bit", "burst", _BURST, "latency", _LATENCY)
        self._run("tc", "qdisc", "replace", "dev", self._here_name, "root", *bucket)
        there = ("ip", "netns", "exec", self.namespace, "tc")
        self._run(*there, "qdisc", "replace", "dev", self._there_name, "root", *bucket)

    def stop(self) -> None:
        for words in (
            ("tc", "qdisc", "del", "dev", self._here_name, "root"),
            ("ip", "netns", "exec", self.namespace, "tc", "qdisc", "del", "dev", self._there_name, "root"),
        ):
            self._run(*words, is_strict=False)

    def close(self) -> None:
        if self._is_made:
            self._run("ip", "link", "del", self._here_name, is_strict=False)
            self._run("ip", "netns", "del", self.namespace, is_strict=False)
            self._is_made = False

    def _measure_peak(self) -> float:
        """Return the bytes a second that go one way while the ranks are busy; takes half a second."""
        counts = []
        for _ in range(_WINDOWS + 1):
            counts.append((time.monotonic(), self._count_bytes()))
            time.sleep(_WINDOW_S)
        return max((b - a) / (t - s) for (s, a), (t, b) in pairwise(counts))

    def _count_bytes(self) -> int:
        path = Path("/sys/class/net") / self._here_name / "statistics" / "tx_bytes"
        try:
            return int(path.read_text(encoding="utf-8"))
        except OSError:
            return 0

    def _run(self, *words: str, is_strict: bool = True) -> None:
        command = [str(find_program(words[0], "iproute2")), *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and is_strict:
            raise UnavailableError(f"`{' '.join(words)}` failed: {done.stderr.strip()} (root is needed)")


def remove_stale_links() -> list[str]:
    """Remove namespaces whose maker is gone, with the links into them; return their names."""
    removed = []
    for path in _NAMESPACES.glob(f"{_PREFIX}*n*") if _NAMESPACES.is_dir() else ():
        maker = path.name.removeprefix(_PREFIX).partition("n")[0]
        if maker.isdecimal() and not Path(f"/proc/{maker}").exists():
            command = [str(find_program("ip", "iproute2")), "netns", "del", path.name]
            subprocess.run(command, capture_output=True, check=False)
            removed.append(path.name)
    return removed
