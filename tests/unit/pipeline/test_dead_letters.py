import errno
import stat
from collections.abc import Sequence
from pathlib import Path

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.dead_letters import DeadLetters, DeadLettersConfig, read_dead_letters
from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.testing.clocks import FakeClock


def build(
    tmp_path: Path, counters: Counters, max_bytes: int = 1 << 20, disk: Disk | None = None
) -> DeadLetters:
    config = DeadLettersConfig(tmp_path / "dead", max_bytes=max_bytes)
    return DeadLetters(config, counters, disk=disk, realtime_ns=FakeClock(7_000))


def test_letters_are_read_back_with_cause_and_time_across_runs(tmp_path: Path, counters: Counters) -> None:
    for run in range(2):
        letters = build(tmp_path, counters)
        letters.write(Signal.LOGS, b"payload %d" % run, "400: bad schema")
        letters.close()
    read = list(read_dead_letters(tmp_path / "dead"))
    assert [letter.payload for letter in read] == [b"payload 0", b"payload 1"]
    assert {(letter.signal, letter.cause, letter.written_ns) for letter in read} == {
        (Signal.LOGS, "400: bad schema", 7_000)
    }
    assert counters.value("llmprism.dead_letters", signal="logs") == 2
    assert counters.value("llmprism.lost", stage="export", cause="rejected") == 2


def test_letters_are_private(tmp_path: Path, counters: Counters) -> None:
    letters = build(tmp_path, counters)
    letters.write(Signal.LOGS, b"a", "rejected")
    letters.close()
    folder = tmp_path / "dead"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


def test_letters_of_the_running_process_can_be_read(tmp_path: Path, counters: Counters) -> None:
    letters = build(tmp_path, counters)
    letters.write(Signal.TRACES, b"a", "rejected")
    assert [letter.payload for letter in read_dead_letters(tmp_path / "dead")] == [b"a"]
    letters.close()


def test_full_folder_counts_the_loss_and_keeps_the_bound(tmp_path: Path, counters: Counters) -> None:
    letters = build(tmp_path, counters, max_bytes=5000)
    for _ in range(10):
        letters.write(Signal.TRACES, bytes(1000), "rejected")
    letters.close()
    assert len(list(read_dead_letters(tmp_path / "dead"))) == 4
    assert sum(path.stat().st_size for path in (tmp_path / "dead").iterdir()) <= 5000
    assert counters.value("llmprism.lost", stage="dead_letters", cause="full") == 6


def test_without_a_folder_the_loss_is_counted(counters: Counters) -> None:
    letters = DeadLetters(DeadLettersConfig(), counters)
    letters.write(Signal.TRACES, b"", "rejected")
    assert counters.value("llmprism.lost", stage="dead_letters", cause="not_kept") == 1


def test_full_disk_counts_the_loss_and_a_later_letter_is_kept(tmp_path: Path, counters: Counters) -> None:
    class FullDisk(Disk):
        is_full = True

        def write(self, fd: int, parts: Sequence[bytes]) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write(fd, parts)

    disk = FullDisk()
    letters = build(tmp_path, counters, disk=disk)
    letters.write(Signal.TRACES, b"a", "rejected")
    disk.is_full = False
    letters.write(Signal.TRACES, b"b", "rejected")
    letters.close()
    assert counters.value("llmprism.lost", stage="dead_letters", cause="disk") == 1
    assert [letter.payload for letter in read_dead_letters(tmp_path / "dead")] == [b"b"]


def test_damaged_letter_costs_itself_alone(tmp_path: Path, counters: Counters) -> None:
    letters = build(tmp_path, counters)
    for text in (b"first", b"second", b"third"):
        letters.write(Signal.TRACES, text, "rejected")
    letters.close()
    (file,) = (tmp_path / "dead").iterdir()
    file.write_bytes(file.read_bytes().replace(b"second", b"sec*nd"))
    assert [letter.payload for letter in read_dead_letters(tmp_path / "dead")] == [b"first", b"third"]
