import errno
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from otel_llmprism.native import ring_layout as layout
from otel_llmprism.native import ring_writer
from otel_llmprism.native.extension import load_extension
from otel_llmprism.native.ring import RingError, RingReader, RingWriter

WRITE_UNTIL_KILLED = """
import sys
from pathlib import Path
from otel_llmprism.native.ring import RingWriter

ring = RingWriter.create(Path(sys.argv[1]), slots=64)
print("ready", flush=True)
number = 0
while True:
    # Three slots with the same number: a reader must never see one without the others' content.
    number += ring.put(b"".join(number.to_bytes(8, "little") * 16 for _ in range(3)))
"""

# In a mount namespace of its own: a memory file system of 64 KiB, a ring that fits and one that does not.
FILL_SMALL_TMPFS = """
set -e
mount -t tmpfs -o size=64k tmpfs "$1"
exec "$2" - "$1" <<'PYTHON'
import sys
from pathlib import Path
from otel_llmprism.native.ring import RingError, RingWriter

folder = Path(sys.argv[1])
ring = RingWriter.create(folder / "fits.ring", slots=256)
try:
    RingWriter.create(folder / "too-large.ring", slots=1024)
except RingError as error:
    print(error)
with (folder / "rest").open("wb", buffering=0) as rest:
    try:
        while True:
            rest.write(bytes(4096))
    except OSError:
        pass
# Every page of the ring is touched with no room left in the file system.
print(all(ring.put(bytes(128)) for _ in range(256)), sorted(path.name for path in folder.iterdir()))
PYTHON
"""


@pytest.fixture(autouse=True, params=["Python", "extension"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run each test on both ways into a ring."""
    if request.param == "Python":
        monkeypatch.setattr(ring_writer, "load_extension", lambda: None)
    elif load_extension() is None:
        pytest.skip("the extension is not built here")
    return str(request.param)


def make_slot(number: int, count: int = 1) -> bytes:
    return number.to_bytes(8, "little") * 16 * count


def read_numbers(slots: bytes) -> list[int]:
    numbers = []
    for start in range(0, len(slots), 128):
        words = set(struct.unpack("<16Q", slots[start : start + 128]))
        assert len(words) == 1, "a torn slot was seen"
        numbers.append(words.pop())
    return numbers


def test_file_is_new_private_and_fully_allocated(tmp_path: Path) -> None:
    path = tmp_path / "a.ring"
    writer = RingWriter.create(path, slots=64)
    status = path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == 256 + 64 * 128
    assert status.st_blocks * 512 >= status.st_size
    with pytest.raises(RingError, match="File exists"):
        RingWriter.create(path, slots=64)
    writer.close()


def test_header_is_laid_out_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.ring"
    writer = RingWriter.create(path, slots=8, clock=lambda: (111, 222))
    writer.put(make_slot(1))
    raw = path.read_bytes()
    assert raw[:24] == b"LLMPRING" + struct.pack("<HHIII", 1, 0, 256, 128, 8)
    assert struct.unpack_from("<I", raw, 24)[0] == os.getpid()
    assert struct.unpack_from("<QQ", raw, 40) == (111, 222)
    assert struct.unpack_from("<QQQQ", raw, 64) == (1, 0, 0, 0)
    assert struct.unpack_from("<Q", raw, 128) == (0,)
    writer.add_hook_time(5_000)
    writer.add_hook_time(700)
    writer.close()
    assert struct.unpack_from("<QQQQ", path.read_bytes(), 64) == (1, 0, 1, 5_700)
    assert struct.unpack_from("<4Q", path.read_bytes(), 96) == (0, 0, 0, 0)


def test_no_room_is_a_clear_error_that_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _offset: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(RingError, match=r"no room for the ring .*No space left.*larger /dev/shm"):
        RingWriter.create(tmp_path / "a.ring")
    assert list(tmp_path.iterdir()) == []


def test_full_memory_file_system_is_an_error_at_start_and_never_a_signal_later(tmp_path: Path) -> None:
    isolate = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*isolate, "true"], check=False).returncode != 0:
        pytest.skip("no mount namespace for this user here")
    command = [*isolate, FILL_SMALL_TMPFS, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    error, filled = done.stdout.splitlines()
    assert "No space left on device" in error
    assert filled == "True ['fits.ring', 'rest']"


def test_missing_folder_and_bad_sizes_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(RingError, match="No such file"):
        RingWriter.create(tmp_path / "absent" / "a.ring")
    with pytest.raises(RingError, match="power of two"):
        RingWriter.create(tmp_path / "a.ring", slots=100)


def test_records_come_out_in_order_across_the_end_of_the_ring(tmp_path: Path) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    reader = RingReader.open(writer.path)
    seen = []
    for number in range(50):
        assert writer.put(make_slot(number, count=3))
        seen += read_numbers(reader.drain(8))
    assert seen == [number for number in range(50) for _ in range(3)]
    writer.close()
    reader.close()


def test_full_ring_drops_whole_records_and_counts_them(tmp_path: Path) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    reader = RingReader.open(writer.path)
    assert [writer.put(make_slot(number, count=3)) for number in range(4)] == [True, True, False, False]
    assert writer.dropped == reader.dropped == 2
    assert read_numbers(reader.drain(100)) == [0, 0, 0, 1, 1, 1]
    assert writer.put(make_slot(9))
    assert read_numbers(reader.drain(100)) == [9]
    writer.close()
    reader.close()


def test_drain_takes_at_most_what_was_asked(tmp_path: Path) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    reader = RingReader.open(writer.path)
    for number in range(5):
        writer.put(make_slot(number))
    assert read_numbers(reader.drain(2)) == [0, 1]
    assert reader.pending == 3
    assert read_numbers(reader.drain(100)) == [2, 3, 4]
    assert reader.drain(100) == b""
    writer.close()
    reader.close()


def test_restarted_reader_continues_at_the_tail(tmp_path: Path) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    for number in range(4):
        writer.put(make_slot(number))
    first = RingReader.open(writer.path)
    assert read_numbers(first.drain(2)) == [0, 1]
    first.close()
    second = RingReader.open(writer.path)
    assert read_numbers(second.drain(10)) == [2, 3]
    second.close(remove=True)
    assert not writer.path.exists()
    writer.close()


def test_unpublished_slots_are_never_seen(tmp_path: Path) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    writer.put(make_slot(1))
    # What a writer killed in the middle of its next record leaves: bytes in the slot, no head.
    writer._view[256 + 128 : 256 + 200] = b"\xee" * 72
    reader = RingReader.open(writer.path)
    assert read_numbers(reader.drain(10)) == [1]
    assert reader.drain(10) == b""
    reader.close()
    writer.close()


def test_forked_child_writes_nothing_into_its_parents_ring(tmp_path: Path) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    reader = RingReader.open(writer.path)
    with writer._lock:  # a thread may hold it while another forks
        child = os.fork()
        if child == 0:
            wrote = writer.put(make_slot(666))
            writer.add_hook_time(666)
            writer.close()
            os._exit(1 if wrote else 0)
    assert os.waitpid(child, 0)[1] == 0
    assert writer.put(make_slot(1))
    assert not reader.is_finished()
    assert reader.hook_time_ns == 0
    assert read_numbers(reader.drain(10)) == [1]
    writer.close()
    reader.close()


def test_forked_child_records_into_a_ring_of_its_own(tmp_path: Path) -> None:
    inherited = RingWriter.create(tmp_path / "parent.ring", slots=8)
    child = os.fork()
    if child == 0:
        own = RingWriter.create(tmp_path / "child.ring", slots=8)
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(int(own.put(make_slot(1)) or inherited.put(make_slot(1))))
        is_silent = os.waitpid(grandchild, 0)[1] == 0
        wrote = own.put(make_slot(7)) and not inherited.put(make_slot(7))
        own.close()
        os._exit(0 if is_silent and wrote else 1)
    assert os.waitpid(child, 0)[1] == 0
    reader = RingReader.open(tmp_path / "child.ring")
    assert read_numbers(reader.drain(10)) == [7]
    reader.close()
    inherited.close()


def test_a_record_that_a_fork_interrupts_publishes_nothing_in_the_child(tmp_path: Path) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    reader = RingReader.open(writer.path)
    child = os.fork()  # as in a signal handler: the record under way goes on in both
    if child == 0:
        writer._words[layout.HEAD_WORD] = 5
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert reader.pending == 0
    writer.close()
    reader.close()


def test_threads_that_record_at_once_lose_and_tear_nothing(tmp_path: Path) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=1 << 12)
    reader = RingReader.open(writer.path)

    def record(own: int) -> None:
        for number in range(300):
            assert writer.put(make_slot(own << 32 | number, count=3))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(record, range(4)))
    finally:
        sys.setswitchinterval(interval)
    numbers = read_numbers(reader.drain(1 << 12))
    assert numbers[::3] == numbers[1::3] == numbers[2::3]
    for own in range(4):
        assert [number & 0xFFFF for number in numbers[::3] if number >> 32 == own] == list(range(300))
    writer.close()
    reader.close()


def test_signal_handler_that_records_or_closes_inside_a_record_never_waits_for_ever(
    tmp_path: Path, path: str
) -> None:
    if path == "extension":
        pytest.skip("no handler of Python's runs inside a put of the extension")
    writer = RingWriter.create(tmp_path / "r", slots=8)
    reader = RingReader.open(tmp_path / "r")
    with writer._lock:  # the interrupted record of the same thread
        assert not writer.put(bytes(128))
        writer.close()
    assert not writer.put(bytes(128))
    assert (reader.dropped, reader.is_finished()) == (1, True)
    reader.close()


def test_closed_writer_refuses_and_tells_its_reader(tmp_path: Path) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    writer.put(make_slot(1))
    reader = RingReader.open(writer.path)
    assert not reader.is_finished()
    writer.close()
    writer.close()
    assert not writer.put(make_slot(2))
    writer.add_hook_time(1)  # a hook of another thread that was under way
    assert reader.is_finished()
    assert read_numbers(reader.drain(10)) == [1]
    reader.close()


def test_reader_takes_everything_a_killed_writer_published(tmp_path: Path) -> None:
    path = tmp_path / "a.ring"
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_UNTIL_KILLED, str(path)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        reader = RingReader.open(path)
        numbers: list[int] = []
        while len(numbers) < 30_000:
            numbers += read_numbers(reader.drain(7))
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert reader.is_finished()
    numbers += read_numbers(reader.drain(1000))
    assert numbers == [number for number in range(len(numbers) // 3) for _ in range(3)]
    reader.close()


def damage(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


@pytest.mark.parametrize(
    ("at", "raw", "why"),
    [
        (0, b"SOMETHIN", "is no ring"),
        (8, struct.pack("<H", 2), "has format 2.0"),
        (10, struct.pack("<H", 1), "has format 1.1.*knows 0.2 and 1.0"),
        (8, struct.pack("<HH", 0, 1), "has format 0.1.*knows 0.2 and 1.0"),
        (16, struct.pack("<I", 64), "impossible sizes"),
        (20, struct.pack("<I", 7), "impossible sizes"),
        (20, struct.pack("<I", 1 << 31), "impossible sizes"),
        (20, struct.pack("<I", 16), "torn"),
    ],
)
def test_foreign_newer_or_torn_file_is_refused_by_name(tmp_path: Path, at: int, raw: bytes, why: str) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    writer.close()
    damage(writer.path, at, raw)
    with pytest.raises(RingError, match=f"a.ring: .*{why}"):
        RingReader.open(writer.path)


def test_empty_file_folder_and_link_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(RingError, match="less than a ring's header"):
        RingReader.open(tmp_path / "empty")
    with pytest.raises(RingError, match="cannot open the ring"):
        RingReader.open(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with pytest.raises(RingError, match="cannot open the ring"):
        RingReader.open(tmp_path / "link")


def test_ring_of_the_format_before_is_read(tmp_path: Path) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    writer.put(make_slot(5))
    writer.close()
    damage(writer.path, 8, struct.pack("<HH", *layout.BEFORE))
    reader = RingReader.open(writer.path)
    assert read_numbers(reader.drain(10)) == [5]
    assert reader.hook_time_ns == 0
    reader.close()


@pytest.mark.parametrize(("head", "tail", "taken"), [(100, 3, 8), (2, 9, 2), (2**63, 0, 8)])
def test_senseless_head_and_tail_never_read_outside_the_ring(
    tmp_path: Path, head: int, tail: int, taken: int
) -> None:
    writer = RingWriter.create(tmp_path / "a.ring", slots=8)
    writer.close()
    damage(writer.path, 64, struct.pack("<Q", head))
    damage(writer.path, 128, struct.pack("<Q", tail))
    reader = RingReader.open(writer.path)
    assert len(reader.drain(1000)) == taken * 128
    assert reader.drain(1000) == b""
    reader.close()
