# A child appends under load and prints what was acknowledged; kill -9 at random moments; nothing that it
# printed may be missing from the log.
import random
import subprocess
import sys
from pathlib import Path

import pytest

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress import build_ingress
from otel_llmprism.pipeline.ingress_config import Durability, IngressConfig, LogConfig

CHILD = """
import sys, threading
from pathlib import Path
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress import build_ingress
from otel_llmprism.pipeline.ingress_config import Durability, IngressConfig, LogConfig
from otel_llmprism.pipeline.ports import Outcome

folder, durability, run = Path(sys.argv[1]), Durability(sys.argv[2]), sys.argv[3]
log = LogConfig(folder, max_bytes=256 << 20, segment_bytes=1 << 20)
ingress = build_ingress(IngressConfig(durability, 200_000, 100, log), Counters())
ingress.start()
told = threading.Lock()

def accept(receiver):
    for number in range(1_000_000):
        name = f"{run}-{receiver}-{number}"
        payload = name.encode().ljust(20_000 if number % 5 else 150_000, b".")
        if ingress.offer(Signal.TRACES, payload).outcome is Outcome.ACCEPTED:
            with told:
                sys.stdout.write("accepted " + name + "\\n")
                sys.stdout.flush()

for receiver in range(3):
    threading.Thread(target=accept, args=(receiver,), daemon=True).start()
while True:
    batch = ingress.take(0.1)
    name = batch.payload.rstrip(b".").decode() if batch else ""
    if batch and name.endswith(("0", "3", "7")):
        with told:
            sys.stdout.write("settled " + name + "\\n")
            sys.stdout.flush()
        batch.receipt.settle()
"""


def run_until_killed(folder: Path, durability: Durability, run: int, lines: int) -> tuple[set[str], set[str]]:
    """Give the names that were told as accepted and as settled before the child was killed."""
    arguments = [sys.executable, "-c", CHILD, str(folder), durability.value, str(run)]
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told: list[str] = []
    with child, child.stdout:
        for line in child.stdout:
            told.append(line)
            if len(told) == lines:
                child.kill()  # its last lines may still be in the pipe: they were told, so they count
    assert child.returncode == -9
    whole = [line.split() for line in told if line.endswith("\n")]
    return {name for what, name in whole if what == "accepted"}, {n for what, n in whole if what == "settled"}


def read_names(folder: Path, durability: Durability) -> list[str]:
    config = IngressConfig(durability, log=LogConfig(folder, max_bytes=256 << 20))
    ingress = build_ingress(config, Counters())
    ingress.start()
    names = []
    while (batch := ingress.take(0)) is not None:
        assert batch.signal is Signal.TRACES
        names.append(batch.payload.rstrip(b".").decode())
        assert len(batch.payload) in {20_000, 150_000}
    ingress.release()
    return names


@pytest.mark.parametrize(("durability", "kills"), [(Durability.PROCESS, 20), (Durability.HOST, 3)])
def test_every_acknowledged_request_outlives_kill_9(
    tmp_path: Path, durability: Durability, kills: int
) -> None:
    moments = random.Random(4711)
    outstanding: dict[Path, set[str]] = {}
    for run in range(kills):
        folder = tmp_path / f"log-{run % 4}"  # some logs go through several kills
        accepted, settled = run_until_killed(folder, durability, run, moments.randrange(1, 300))
        found = read_names(folder, durability)
        assert len(found) == len(set(found)), "each comes once in one run"
        owed = outstanding[folder] = (outstanding.get(folder, set()) | accepted) - settled
        assert owed <= set(found)
        mine = {name for name in found if name.startswith(f"{run}-")}
        # one request a receiver may be written and not yet told, one may be settled and not yet written down
        assert len(mine - accepted) <= 3
        assert len(mine & settled) <= 1
    assert all(outstanding.values()), "a run without load proves nothing"
