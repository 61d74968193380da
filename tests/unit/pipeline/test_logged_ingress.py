import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress_config import Durability, IngressConfig, LogConfig
from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.pipeline.log.errors import LogStartError
from otel_llmprism.pipeline.log.write_ahead_log import WriteAheadLog
from otel_llmprism.pipeline.logged_ingress import LoggedIngress
from otel_llmprism.pipeline.ports import Outcome
from otel_llmprism.testing.clocks import FakeClock

Build = Callable[..., LoggedIngress]


class FaultyDisk(Disk):
    """Writes and syncs fail with `error` while it is set; a write may leave a part behind first."""

    def __init__(self) -> None:
        self.error: int | None = None
        self.part = 0
        self.can_truncate = True
        self.syncs = 0

    def write(self, fd: int, parts: Sequence[bytes]) -> None:
        if self.error is not None:
            if self.part:
                super().write(fd, [b"".join(parts)[: self.part]])
            raise OSError(self.error, "told to fail")
        super().write(fd, parts)

    def truncate(self, fd: int, size: int) -> None:
        if not self.can_truncate:
            raise OSError(errno.EIO, "told to fail")
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self.syncs += 1
        if self.error is not None:
            raise OSError(self.error, "told to fail")
        super().sync(fd)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def build(tmp_path: Path, counters: Counters, clock: FakeClock) -> Iterator[Build]:
    """Build an ingress on the test's folder, started; released at the end."""
    built: list[LoggedIngress] = []

    def build_started(
        *,
        queue_bytes: int = 1 << 20,
        log_bytes: int = 16 << 20,
        durability: Durability = Durability.PROCESS,
        disk: Disk | None = None,
    ) -> LoggedIngress:
        log_config = LogConfig(tmp_path / "log", max_bytes=log_bytes)
        config = IngressConfig(durability, queue_bytes, 1000, log_config, replay_metrics_max_age_s=60)
        is_synced = durability is Durability.HOST
        log = WriteAheadLog(log_config, counters, is_synced=is_synced, disk=disk, realtime_ns=clock)
        ingress = LoggedIngress(config, counters, clock, clock, log)
        built.append(ingress)
        ingress.start()
        return ingress

    yield build_started
    for ingress in built:
        ingress.release()


def take_all(ingress: LoggedIngress) -> list[Batch]:
    batches = []
    while (batch := ingress.take(0)) is not None:
        batches.append(batch)
    return batches


def offer(ingress: LoggedIngress, *payloads: bytes, signal: Signal = Signal.TRACES) -> list[Outcome]:
    return [ingress.offer(signal, payload).outcome for payload in payloads]


def test_accepted_requests_come_out_once_in_order(build: Build) -> None:
    ingress = build()
    assert offer(ingress, b"a", b"b") == [Outcome.ACCEPTED] * 2
    assert [batch.payload for batch in take_all(ingress)] == [b"a", b"b"]
    offer(ingress, b"c")
    assert [batch.payload for batch in take_all(ingress)] == [b"c"]


def test_unsettled_requests_come_again_after_a_restart_settled_ones_do_not(
    build: Build, counters: Counters
) -> None:
    ingress = build()
    take_all(ingress)
    offer(ingress, b"a", b"b", b"c")
    take_all(ingress)[1].receipt.settle()
    ingress.release()
    assert [(batch.payload, batch.signal) for batch in take_all(build())] == [
        (b"a", Signal.TRACES),
        (b"c", Signal.TRACES),
    ]
    assert counters.value("llmprism.log.replayed", signal="traces") == 2


def test_cut_request_is_freed_only_when_its_last_piece_is_settled(build: Build) -> None:
    ingress = build()
    take_all(ingress)
    offer(ingress, b"a")
    (batch,) = take_all(ingress)
    batch.receipt.add_pieces(1)
    batch.receipt.settle()
    ingress.release()
    assert [batch.payload for batch in take_all(build())] == [b"a"]


def test_overflow_lies_on_the_disk_and_comes_back_in_order(build: Build, counters: Counters) -> None:
    ingress = build(queue_bytes=10_000)
    take_all(ingress)
    payloads = [b"%03d" % number * 500 for number in range(200)]
    assert offer(ingress, *payloads) == [Outcome.ACCEPTED] * 200
    ingress.record_gauges(0)
    assert counters.value("llmprism.queue.bytes") <= 10_000
    assert counters.value("llmprism.log.bytes") > 300_000
    taken = take_all(ingress)
    assert [batch.payload for batch in taken] == payloads
    offer(ingress, b"after")
    assert [batch.payload for batch in take_all(ingress)] == [b"after"]


def test_settled_overflow_leaves_the_disk(build: Build, counters: Counters) -> None:
    ingress = build(queue_bytes=10_000, log_bytes=1 << 20)
    for _ in range(5):
        outcomes = offer(ingress, *[bytes(5000)] * 100)
        assert set(outcomes) == {Outcome.ACCEPTED}
        for batch in take_all(ingress):
            batch.receipt.settle()
    ingress.record_gauges(0)
    assert counters.value("llmprism.log.bytes") < 100_000


def test_full_log_is_busy_with_retry_and_loses_nothing(build: Build, counters: Counters) -> None:
    ingress = build(log_bytes=1 << 20)
    outcomes = offer(ingress, *[b"%04d" % number * 2500 for number in range(200)])
    verdict = ingress.offer(Signal.TRACES, bytes(10_000))
    assert verdict.outcome is Outcome.BUSY
    assert verdict.retry_after_s > 0
    accepted = outcomes.count(Outcome.ACCEPTED)
    assert 90 < accepted < 105
    taken = take_all(ingress)
    assert [batch.payload[:4] for batch in taken] == [b"%04d" % number for number in range(accepted)]
    for batch in taken:
        batch.receipt.settle()
    assert offer(ingress, b"again") == [Outcome.ACCEPTED]
    assert counters.value("llmprism.lost", stage="log", cause="corrupt") == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(errno.ENOSPC, Outcome.BUSY), (errno.EIO, Outcome.UNAVAILABLE), (errno.EROFS, Outcome.UNAVAILABLE)],
)
@pytest.mark.parametrize("part", [0, 5, 40])
@pytest.mark.parametrize("can_truncate", [True, False])
def test_disk_that_fails_refuses_is_counted_and_recovers(
    build: Build, counters: Counters, error: int, outcome: Outcome, part: int, *, can_truncate: bool
) -> None:
    disk = FaultyDisk()
    ingress = build(disk=disk)
    assert offer(ingress, b"before" * 10) == [Outcome.ACCEPTED]
    disk.error, disk.part, disk.can_truncate = error, part, can_truncate
    assert offer(ingress, b"refused" * 10, b"refused" * 10) == [outcome] * 2
    disk.error, disk.can_truncate = None, True
    assert offer(ingress, b"after" * 10) == [Outcome.ACCEPTED]
    assert [batch.payload for batch in take_all(ingress)] == [b"before" * 10, b"after" * 10]
    ingress.release()
    assert [batch.payload for batch in take_all(build())] == [b"before" * 10, b"after" * 10]
    failures = [r.value for r in counters.read_all() if r.name == "llmprism.log.errors"]
    assert sum(failures) == 2
    assert counters.value("llmprism.lost", stage="log", cause="corrupt") == 0


def test_failed_acknowledgement_only_sends_again(build: Build, counters: Counters) -> None:
    disk = FaultyDisk()
    ingress = build(disk=disk)
    offer(ingress, b"a", b"b")
    disk.error = errno.ENOSPC
    for batch in take_all(ingress):
        batch.receipt.settle()
    assert counters.value("llmprism.log.errors", operation="acknowledge", cause="no_space") == 2


def test_full_disk_at_start_is_a_clear_error_when_there_is_nothing_to_drain(build: Build) -> None:
    disk = FaultyDisk()
    disk.error = errno.ENOSPC
    with pytest.raises(LogStartError, match=r"takes no segment.*free space"):
        build(disk=disk)


def test_full_disk_at_start_still_drains_what_an_earlier_run_left(build: Build) -> None:
    ingress = build()
    offer(ingress, b"a")
    ingress.release()
    disk = FaultyDisk()
    disk.error = errno.ENOSPC
    ingress = build(disk=disk)
    assert offer(ingress, b"refused") == [Outcome.BUSY]
    assert [batch.payload for batch in take_all(ingress)] == [b"a"]
    disk.error = None
    assert offer(ingress, b"b") == [Outcome.ACCEPTED]
    assert [batch.payload for batch in take_all(ingress)] == [b"b"]


def test_host_durability_syncs_before_it_acknowledges_and_refuses_when_that_fails(build: Build) -> None:
    disk = FaultyDisk()
    ingress = build(durability=Durability.HOST, disk=disk)
    assert offer(ingress, b"a", b"b") == [Outcome.ACCEPTED] * 2
    assert disk.syncs == 2

    real_write = disk.write
    disk.write = lambda fd, parts: Disk.write(disk, fd, parts)  # type: ignore[method-assign]
    disk.error = errno.EIO
    assert offer(ingress, b"not on the disk") == [Outcome.UNAVAILABLE]
    disk.error = None
    disk.write = real_write  # type: ignore[method-assign]
    assert offer(ingress, b"c") == [Outcome.ACCEPTED], "a new file is trusted again"


def test_old_metrics_of_an_earlier_run_are_counted_and_not_sent(
    build: Build, counters: Counters, clock: FakeClock
) -> None:
    ingress = build()
    offer(ingress, b"old metrics", signal=Signal.METRICS)
    offer(ingress, b"old traces")
    clock.advance(seconds=50)
    offer(ingress, b"young metrics", signal=Signal.METRICS)
    ingress.release()
    clock.advance(seconds=20)
    ingress = build()
    assert [batch.payload for batch in take_all(ingress)] == [b"old traces", b"young metrics"]
    assert counters.value("llmprism.lost", stage="log", cause="aged") == 1
    ingress.release()
    assert [batch.payload for batch in take_all(build())] == [b"old traces", b"young metrics"]
    assert counters.value("llmprism.lost", stage="log", cause="aged") == 1, "freed, so counted once"


def test_metrics_of_this_run_never_age(build: Build, clock: FakeClock) -> None:
    ingress = build()
    offer(ingress, b"metrics", signal=Signal.METRICS)
    clock.advance(seconds=1000)
    assert [batch.payload for batch in take_all(ingress)] == [b"metrics"]


def test_what_came_before_a_restart_leaves_before_what_comes_after(build: Build) -> None:
    ingress = build()
    offer(ingress, b"1", b"2")
    ingress.release()
    ingress = build()
    offer(ingress, b"3")
    assert [batch.payload for batch in take_all(ingress)] == [b"1", b"2", b"3"]


def test_concurrent_receivers_lose_and_double_nothing(build: Build) -> None:
    ingress = build(queue_bytes=5_000)
    refused: list[Outcome] = []

    def offer_many(receiver: int) -> None:
        outcomes = offer(ingress, *(b"%d-%d " % (receiver, number) * 30 for number in range(100)))
        refused.extend(outcome for outcome in outcomes if outcome is not Outcome.ACCEPTED)

    receivers = [threading.Thread(target=offer_many, args=(number,)) for number in range(16)]
    for receiver in receivers:
        receiver.start()
    taken: list[bytes] = []
    for _ in range(1_000_000):
        batch = ingress.take(0.01)
        if batch is not None:
            taken.append(batch.payload.split()[0])
            batch.receipt.settle()
        elif not any(receiver.is_alive() for receiver in receivers):
            break
    taken += [batch.payload.split()[0] for batch in take_all(ingress)]
    assert refused == []
    assert sorted(taken) == sorted(b"%d-%d" % (r, n) for r in range(16) for n in range(100))
    for index in range(16):
        mine = [name for name in taken if name.startswith(b"%d-" % index)]
        assert mine == [b"%d-%d" % (index, number) for number in range(100)], "each receiver's order"


def test_gauges_say_how_old_the_backlog_is(build: Build, counters: Counters, clock: FakeClock) -> None:
    ingress = build(queue_bytes=1)
    take_all(ingress)
    offer(ingress, b"a", b"b", b"c")
    ingress.record_gauges(clock.advance(seconds=3))
    assert counters.value("llmprism.queue.oldest_age") == 3
    ingress.take(0)
    ingress.take(0)
    ingress.record_gauges(clock.advance(seconds=4))
    assert counters.value("llmprism.queue.oldest_age") == 7
    take_all(ingress)
    ingress.record_gauges(clock())
    assert counters.value("llmprism.queue.oldest_age") == 0
