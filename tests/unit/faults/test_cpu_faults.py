import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_llmprism.testing.faults.affinity import AffinitySqueeze
from otel_llmprism.testing.faults.control_groups import (
    PREFIX,
    ControlGroup,
    find_version,
    remove_stale_groups,
)
from otel_llmprism.testing.faults.cpu_burners import CpuBurners, choose_niceness
from otel_llmprism.testing.faults.fault import UnavailableError, find_program
from otel_llmprism.testing.faults.process_threads import list_descendants


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process.pid
        process.kill()


def test_squeezed_threads_get_their_cores_back(sleeper: int) -> None:
    before = os.sched_getaffinity(sleeper)
    core = min(before)
    squeeze = AffinitySqueeze([sleeper], "engine", core)
    squeeze.start(2.0)
    assert os.sched_getaffinity(sleeper) == {core}
    squeeze.stop()
    assert os.sched_getaffinity(sleeper) == before


def test_burners_end_when_they_are_stopped_and_nothing_else_does(sleeper: int) -> None:
    core = min(os.sched_getaffinity(0))
    burners = CpuBurners([core], max_s=30)
    burners.start(3.0)
    assert len(list_descendants(os.getpid())) == 4  # this one, the sleeper, two burners
    burners.stop()
    burners.stop()
    assert list_descendants(os.getpid()) == [os.getpid(), sleeper]


@pytest.mark.parametrize(("intensity", "niceness"), [(1.1, [10]), (1.3, [5]), (2.0, [0]), (3.0, [0, 0])])
def test_burners_leave_an_engine_its_share(intensity: float, niceness: list[int]) -> None:
    assert choose_niceness(intensity) == niceness


def test_limits_are_written_as_each_version_of_control_groups_wants_them(tmp_path: Path) -> None:
    for version, expected in (
        (1, {"cpu.cfs_quota_us": "10000", "cpu.cfs_period_us": "20000"}),
        (2, {"cpu.max": "10000 20000"}),
    ):
        folder = tmp_path / str(version)
        folder.mkdir()
        ControlGroup(folder, version).limit_cpu(0.5)
        assert {path.name: path.read_text() for path in folder.iterdir()} == expected


def test_missing_controller_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="controller `cpu` is not mounted"):
        find_version("cpu", tmp_path)


def test_controller_is_found_where_version_two_lists_it(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert find_version("memory", tmp_path) == 2


def test_groups_of_a_crashed_run_are_removed_and_those_of_a_living_one_stay(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait(30)
    stale, living = (tmp_path / "cpu" / f"{PREFIX}{pid}-x" for pid in (ended.pid, os.getpid()))
    for folder in (stale, living):
        folder.mkdir(parents=True)
    assert remove_stale_groups(tmp_path) == [stale]
    assert living.is_dir()


def test_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(UnavailableError, match="`nothing-like-this` is not installed \\(package some\\)"):
        find_program("nothing-like-this", "some")
