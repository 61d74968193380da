import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.pipeline.log.group_sync import GroupSync


class GatedDisk(Disk):
    """Each sync waits for its gate; what it syncs is what was written when it began."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.syncs = 0
        self.error: int | None = None

    def sync(self, fd: int) -> None:
        self.syncs += 1
        self.began.release()
        self.gate.acquire()
        if self.error is not None:
            raise OSError(self.error, "told to fail")
        super().sync(fd)


@pytest.fixture
def disk() -> GatedDisk:
    return GatedDisk()


@pytest.fixture
def group(tmp_path: Path, disk: GatedDisk) -> Iterator[GroupSync]:
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    group = GroupSync(fd, disk)
    os.close(fd)
    yield group
    group.close(is_delivered=True)


def wait_in_thread(group: GroupSync, end: int, outcomes: list[str]) -> threading.Thread:
    def wait() -> None:
        try:
            group.wait_until(end)
            outcomes.append(f"{end} durable")
        except OSError:
            outcomes.append(f"{end} failed")

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_those_who_wait_meanwhile_share_the_next_sync(group: GroupSync, disk: GatedDisk) -> None:
    outcomes: list[str] = []
    group.note_written(10)
    threads = [wait_in_thread(group, 10, outcomes)]
    assert disk.began.acquire(timeout=10)
    group.note_written(90)
    threads += [wait_in_thread(group, end, outcomes) for end in range(20, 100, 10)]
    assert outcomes == [], "nobody is told before the disk has it"
    disk.gate.release(2)
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes) == sorted(f"{end} durable" for end in range(10, 100, 10))
    assert disk.syncs == 2


def test_what_is_durable_needs_no_further_sync(group: GroupSync, disk: GatedDisk) -> None:
    disk.gate.release()
    group.note_written(10)
    group.wait_until(10)
    group.wait_until(5)
    assert disk.syncs == 1


def test_failed_sync_fails_all_that_it_was_for_and_all_later(group: GroupSync, disk: GatedDisk) -> None:
    disk.gate.release(2)
    group.note_written(10)
    group.wait_until(10)
    disk.error = errno.EIO
    group.note_written(20)
    with pytest.raises(OSError, match="told to fail"):
        group.wait_until(20)
    disk.error = None
    with pytest.raises(OSError, match="told to fail"):
        group.wait_until(20)
    assert group.has_failed
    group.wait_until(10)


@pytest.mark.parametrize(("is_delivered", "told"), [(True, "20 durable"), (False, "20 failed")])
def test_closing_lets_waiters_go_and_says_safe_only_of_what_is(
    group: GroupSync, disk: GatedDisk, *, is_delivered: bool, told: str
) -> None:
    outcomes: list[str] = []
    group.note_written(10)
    threads = [wait_in_thread(group, 10, outcomes)]
    assert disk.began.acquire(timeout=10)
    group.note_written(20)
    threads.append(wait_in_thread(group, 20, outcomes))
    group.close(is_delivered=is_delivered)
    group.close(is_delivered=True)
    disk.gate.release()
    for thread in threads:
        thread.join(10)
    # Delivered, the first needs no disk either; else the sync under way still comes in time for it.
    assert sorted(outcomes) == sorted(["10 durable", told])
