# A disk without room: counted losses or forgotten old spans, never a crash, and on it goes with room.
import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_llmprism.exporters.store.config import StoreConfig
from otel_llmprism.exporters.store.database import StoreUnusableError
from otel_llmprism.exporters.store.sink import StoreSink
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.receipt import Receipt

Make = Callable[..., bytes]
DISK_BYTES = 4 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root, to mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    options = f"size={DISK_BYTES},mode=700"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False)
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield folder
    # Lazily: a test that failed may still hold a file, and a mount left behind would outlive the tests.
    subprocess.run(["umount", "-l", folder], check=True)


def build_payload(make_request: Make, trace: int) -> bytes:
    rng = random.Random(trace)  # what does not compress
    padding = [{"padding": rng.randbytes(300).hex()} for _ in range(50)]
    return make_request(
        *({"trace": trace, "span": n, "attributes": extra} for n, extra in enumerate(padding, 1))
    )


def fill_up(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def store_all(config: StoreConfig, payloads: list[bytes], counters: Counters) -> int:
    settled: list[int] = []
    sink = StoreSink(config, counters)
    sink.start()
    for payload in payloads:
        sink.send(Batch(Signal.TRACES, payload, Receipt(lambda: settled.append(1)), 0))
    sink.stop(time.monotonic_ns() + 60 * 10**9)
    return len(settled)


def test_a_disk_smaller_than_the_bound_forgets_or_counts(small_disk: Path, make_request: Make) -> None:
    counters = Counters()
    config = StoreConfig(small_disk / "data", block_bytes=1)  # a block a request
    payloads = [build_payload(make_request, trace) for trace in range(1, 301)]  # 9 MB on a disk of 4
    assert store_all(config, payloads, counters) == 300
    stored = counters.value("llmprism.store.spans")
    lost = counters.value("llmprism.lost", stage="store", cause="disk_full")
    assert stored + lost == 300 * 50
    assert lost > 0 or counters.value("llmprism.store.forgotten") > 0
    assert counters.value("llmprism.lost", stage="store", cause="store_error") == 0


def test_the_store_goes_on_once_there_is_room(small_disk: Path, make_request: Make) -> None:
    counters = Counters()
    config = StoreConfig(small_disk / "data")
    assert store_all(config, [build_payload(make_request, 1)], counters) == 1
    ballast = small_disk / "ballast"
    sink = StoreSink(config, counters)
    sink.start()
    fill_up(ballast)
    settled: list[int] = []
    for trace in range(2, 20):
        sink.send(
            Batch(Signal.TRACES, build_payload(make_request, trace), Receipt(lambda: settled.append(1)), 0)
        )
    give_up_at = time.monotonic() + 30
    while len(settled) < 18 and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert counters.value("llmprism.lost", stage="store", cause="disk_full") > 0
    ballast.unlink()
    before = counters.value("llmprism.store.spans")
    sink.send(Batch(Signal.TRACES, build_payload(make_request, 50), Receipt(lambda: settled.append(1)), 0))
    sink.stop(time.monotonic_ns() + 30 * 10**9)
    assert counters.value("llmprism.store.spans") == before + 50


def test_a_full_disk_at_start_is_said_with_the_folder(small_disk: Path) -> None:
    fill_up(small_disk / "ballast")
    sink = StoreSink(StoreConfig(small_disk / "data"), Counters())
    with pytest.raises(StoreUnusableError, match=r"cannot keep spans in .*data: .*; check its room"):
        sink.start()
