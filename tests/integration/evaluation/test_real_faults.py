# The faults from outside on the real kernel: each does what it says, to what it was told, and leaves nothing.
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_llmprism.testing.faults.control_groups import PREFIX, ROOT
from otel_llmprism.testing.faults.cpu_quota import CpuQuota
from otel_llmprism.testing.faults.fault import Fault, UnavailableError
from otel_llmprism.testing.faults.link import LinkThrottle
from otel_llmprism.testing.faults.memory_squeeze import MemorySqueeze
from otel_llmprism.testing.programs import wait_until


@pytest.fixture
def busy() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process.pid
        process.kill()


def prepare(fault: Fault) -> None:
    try:
        fault.prepare()
    except UnavailableError as missing:
        pytest.skip(f"this machine cannot make the fault: {missing}")


def list_groups() -> list[Path]:
    return [path for base in (ROOT, ROOT / "cpu", ROOT / "memory") for path in base.glob(f"{PREFIX}*")]


def count_throttled(folder: Path) -> int:
    lines = (folder / "cpu.stat").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("nr_throttled")))


def test_quota_throttles_what_it_was_set_on_and_leaves_no_group(busy: int) -> None:
    quota = CpuQuota([busy], "engine")
    prepare(quota)
    (group,) = [path for path in list_groups() if "engine" in path.name]
    time.sleep(0.5)  # what it uses while nothing limits it
    assert count_throttled(group) == 0
    quota.start(2.0)
    wait_until(lambda: count_throttled(group) > 3, "it is not throttled", 10.0)
    quota.stop()
    quota.close()
    assert not group.exists()


def test_memory_group_is_made_limited_and_removed() -> None:
    squeeze = MemorySqueeze("engine", 16 << 20)
    prepare(squeeze)
    folder = squeeze.find_folder()
    squeeze.start(2.0)
    squeeze.stop()
    squeeze.close()
    squeeze.close()
    assert not folder.exists()


def test_link_is_throttled_both_ways_and_removed_with_its_namespace() -> None:
    link = LinkThrottle("1->0")
    prepare(link)
    try:
        link.start(2.0)
        shown = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
        assert "tbf" in shown
        link.stop()
        shown = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
        assert "tbf" not in shown
    finally:
        link.close()
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert link.namespace not in listed
