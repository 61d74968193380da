# A disk that is really full: a tmpfs of 2 MiB, where the system lets us mount one.
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.dead_letters import DeadLetters, DeadLettersConfig, read_dead_letters
from otel_llmprism.pipeline.ingress import Feed, build_ingress
from otel_llmprism.pipeline.ingress_config import Durability, IngressConfig, LogConfig
from otel_llmprism.pipeline.log.errors import LogStartError
from otel_llmprism.pipeline.ports import Outcome


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None:
        pytest.skip("no mount command: the full disk is tested by injected faults only")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no right to mount a tmpfs ({made.stderr.strip()}): tested by injected faults only")
    yield folder
    subprocess.run([unmount, "-l", folder], check=True)


def build(folder: Path, counters: Counters) -> Feed:
    log = LogConfig(folder / "log", max_bytes=64 << 20, segment_bytes=1 << 18)
    ingress = build_ingress(IngressConfig(Durability.PROCESS, log=log), counters)
    ingress.start()
    return ingress


def take_payloads(ingress: Feed) -> list[bytes]:
    payloads = []
    while (batch := ingress.take(0)) is not None:
        payloads.append(batch.payload[:4])
        batch.receipt.settle()
    return payloads


def test_full_disk_refuses_loses_nothing_and_recovers_when_space_comes_back(
    small_disk: Path, counters: Counters
) -> None:
    ingress = build(small_disk, counters)
    outcomes = [ingress.offer(Signal.TRACES, b"%04d" % n * 10_000).outcome for n in range(100)]
    accepted = [b"%04d" % n for n, outcome in enumerate(outcomes) if outcome is Outcome.ACCEPTED]
    assert set(outcomes) == {Outcome.ACCEPTED, Outcome.BUSY}
    assert counters.value("llmprism.log.errors", operation="append", cause="no_space") >= 1
    ingress.release()

    ingress = build(small_disk, counters)  # starts on a full disk: else it could never drain it
    assert take_payloads(ingress) == accepted
    assert ingress.offer(Signal.TRACES, b"back" * 10_000).outcome is Outcome.ACCEPTED
    assert take_payloads(ingress) == [b"back"]
    ingress.release()
    assert counters.value("llmprism.lost", stage="log", cause="corrupt") == 0


def test_start_on_a_disk_without_space_says_so(small_disk: Path, counters: Counters) -> None:
    with (small_disk / "filler").open("wb", buffering=0) as filler:
        assert filler.write(bytes(4 << 20)) < 4 << 20, "the disk is full now"
    with pytest.raises(LogStartError, match="free space"):
        build(small_disk, counters)


def test_dead_letter_on_a_full_disk_is_counted_as_lost(small_disk: Path, counters: Counters) -> None:
    letters = DeadLetters(DeadLettersConfig(small_disk / "dead", max_bytes=64 << 20), counters)
    for _ in range(5):
        letters.write(Signal.TRACES, bytes(500_000), "rejected")
    letters.close()
    assert counters.value("llmprism.lost", stage="dead_letters", cause="disk") == 1
    assert len(list(read_dead_letters(small_disk / "dead"))) == 4
