# The store as the end of the pipeline: every receipt is settled, whatever happens to the batch.
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_llmprism.exporters.store.block_writer import BlockWriter, Written
from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.config import StoreConfig
from otel_llmprism.exporters.store.connection_pool import ConnectionPool
from otel_llmprism.exporters.store.database import StoreUnusableError
from otel_llmprism.exporters.store.reader import StoreReader
from otel_llmprism.exporters.store.sink import StoreSink
from otel_llmprism.exporters.store.store import SpanStore
from otel_llmprism.exporters.store.stored import TraceQuery
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.dead_letters import DeadLetters, DeadLettersConfig, read_dead_letters
from otel_llmprism.pipeline.receipt import Receipt

Make = Callable[..., bytes]
SECONDS = 10**9


class Settled:
    """Counts settled receipts."""

    def __init__(self) -> None:
        self.count = 0

    def build(self, signal: Signal, payload: bytes) -> Batch:
        return Batch(signal, payload, Receipt(self._note), 0)

    def _note(self) -> None:
        self.count += 1


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def sink(store_config: StoreConfig, counters: Counters) -> Iterator[StoreSink]:
    started = StoreSink(store_config, counters)
    started.start()
    yield started
    stop(started)


def stop(sink: StoreSink) -> None:
    sink.stop(time.monotonic_ns() + 30 * SECONDS)


def test_batches_are_stored_and_settled(sink: StoreSink, counters: Counters, make_request: Make) -> None:
    settled = Settled()
    for trace in range(1, 6):
        sink.send(settled.build(Signal.TRACES, make_request({"trace": trace})))
    stop(sink)
    assert settled.count == 5
    assert counters.value("llmprism.store.spans") == 5


def test_a_batch_that_is_no_otlp_costs_only_itself(
    store_config: StoreConfig, counters: Counters, make_request: Make
) -> None:
    settled = Settled()
    sink = StoreSink(store_config, counters)
    for payload in (make_request({"trace": 1}), b"\xff\xff\xff", make_request({"trace": 2})):
        sink.send(settled.build(Signal.TRACES, payload))  # queued before the start: one group
    sink.start()
    stop(sink)
    assert settled.count == 3
    assert counters.value("llmprism.store.spans") == 2
    assert counters.value("llmprism.lost", stage="store", cause="malformed") == 1


def test_a_store_that_fails_is_counted_and_outlived(
    sink: StoreSink, counters: Counters, make_request: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(BlockWriter, "write_block", refuse)
    settled = Settled()
    sink.send(settled.build(Signal.TRACES, make_request({"span": 1}, {"span": 2})))
    stop(sink)
    assert settled.count == 1
    assert counters.value("llmprism.lost", stage="store", cause="store_error") == 2


class FlakyWrite:
    """Stands in for BlockWriter.write_block: fails with an SQLite code so often, then writes."""

    def __init__(self, code: int, failures: int) -> None:
        self._code = code
        self._failures = failures
        self._write = BlockWriter.write_block
        self.has_failed = threading.Event()

    def build(self) -> Callable[..., Written]:
        def write(writer: BlockWriter, *args: Any) -> Written:
            if self._failures <= 0:
                return self._write(writer, *args)
            self._failures -= 1
            self.has_failed.set()
            error = sqlite3.OperationalError("not now")
            error.sqlite_errorcode = self._code
            raise error

        return write


@pytest.mark.parametrize(
    "code",
    [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_SNAPSHOT, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR_FSYNC],
)
def test_a_write_that_fails_for_a_while_is_repeated_and_loses_nothing(
    sink: StoreSink, counters: Counters, make_request: Make, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(BlockWriter, "write_block", FlakyWrite(code, failures=2).build())
    done = threading.Event()
    sink.send(Batch(Signal.TRACES, make_request({"span": 1}, {"span": 2}), Receipt(done.set), 0))
    assert done.wait(30)
    assert counters.value("llmprism.store.spans") == 2
    assert counters.value("llmprism.store.retries") == 2
    assert counters.value("llmprism.lost", stage="store", cause="store_error") == 0


def test_what_a_locked_store_does_not_take_until_the_stop_is_left_to_the_log(
    sink: StoreSink, counters: Counters, make_request: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    flaky = FlakyWrite(sqlite3.SQLITE_BUSY, failures=10**9)
    monkeypatch.setattr(BlockWriter, "write_block", flaky.build())
    settled = Settled()
    sink.send(settled.build(Signal.TRACES, make_request({"trace": 1})))
    assert flaky.has_failed.wait(30)
    sink.send(settled.build(Signal.TRACES, make_request({"trace": 2})))
    stop(sink)
    assert settled.count == 0
    assert not [reading for reading in counters.read_all() if reading.name == "llmprism.lost"]


def test_what_the_store_never_takes_is_kept_as_a_dead_letter_and_costs_only_itself(
    store_config: StoreConfig,
    counters: Counters,
    make_request: Make,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    write_block = BlockWriter.write_block
    good, bad = make_request({"trace": 1}), make_request({"trace": 2, "name": "unlucky"})

    def refuse_unlucky(writer: BlockWriter, payload: bytes, *args: Any) -> Written:
        if b"unlucky" in payload:
            raise ValueError("a defect")
        return write_block(writer, payload, *args)

    monkeypatch.setattr(BlockWriter, "write_block", refuse_unlucky)
    letters = DeadLetters(DeadLettersConfig(tmp_path / "dead"), counters)
    sink = StoreSink(store_config, counters, dead_letters=letters)
    settled = Settled()
    for payload in (good, bad):
        sink.send(settled.build(Signal.TRACES, payload))  # queued before the start: one group
    sink.start()
    stop(sink)
    letters.close()
    (letter,) = read_dead_letters(tmp_path / "dead")
    assert letter.payload == bad
    assert letter.cause == "the store refused it: ValueError: a defect"
    assert settled.count == 2
    assert counters.value("llmprism.store.spans") == 1
    assert counters.value("llmprism.lost", stage="store", cause="store_error") == 1
    assert counters.value("llmprism.dead_letters", signal="traces") == 1


def test_retention_that_fails_is_counted_and_outlived_and_said_once_a_minute(
    sink: StoreSink,
    counters: Counters,
    make_request: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_store: SpanStore) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(SpanStore, "forget_due", fail)
    for trace in range(1, 4):
        done = threading.Event()
        sink.send(Batch(Signal.TRACES, make_request({"trace": trace}), Receipt(done.set), 0))
        assert done.wait(30), "the writer thread ended"
    stop(sink)
    assert counters.value("llmprism.store.spans") == 3
    assert counters.value("llmprism.pipeline.errors", part="store_retention") >= 3
    assert caplog.text.count("the store could not forget old spans") == 1


def test_a_log_that_fails_to_free_an_entry_does_not_end_the_writer(
    sink: StoreSink, counters: Counters, make_request: Make
) -> None:
    def fail() -> None:
        raise OSError("no such file")

    settled = Settled()
    sink.send(Batch(Signal.TRACES, make_request({"trace": 1}), Receipt(fail), 0))
    sink.send(settled.build(Signal.TRACES, make_request({"trace": 2})))
    stop(sink)
    assert settled.count == 1
    assert counters.value("llmprism.store.spans") == 2
    assert counters.value("llmprism.pipeline.errors", part="store_settle") == 1


def test_send_waits_while_the_queue_is_full(
    store_config: StoreConfig, counters: Counters, make_request: Make
) -> None:
    payload = make_request({"trace": 1})
    sink = StoreSink(replace(store_config, queue_bytes=len(payload)), counters)
    settled = Settled()
    sink.send(settled.build(Signal.TRACES, payload))
    sent = threading.Event()

    def send_more() -> None:
        sink.send(settled.build(Signal.TRACES, make_request({"trace": 2})))
        sent.set()

    sender = threading.Thread(target=send_more)
    sender.start()
    assert not sent.wait(0.05)
    sink.start()
    assert sent.wait(10)
    sender.join()
    stop(sink)
    assert settled.count == 2


def test_what_is_left_at_the_deadline_stays_unsettled(
    store_config: StoreConfig, counters: Counters, make_request: Make
) -> None:
    settled = Settled()
    sink = StoreSink(store_config, counters)
    sink.send(settled.build(Signal.TRACES, make_request({"trace": 1})))
    sink._stop_by_ns = 0  # the deadline passed before the thread began
    sink.start()
    sink.stop(0)
    assert settled.count == 0


def test_our_events_are_kept_and_others_logs_are_not(
    sink: StoreSink, counters: Counters, store_config: StoreConfig
) -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    finding = records.add(event_name="llmprism.finding", time_unix_nano=5, trace_id=b"t" * 16)
    finding.attributes.add(key="llmprism.finding.kind").value.string_value = "slow_worker"
    records.add(event_name="llmprism.ledger").body.bytes_value = b"columns"
    records.add(event_name="app.chat").body.string_value = "a prompt"
    records.add().body.string_value = "a prompt"
    settled = Settled()
    for _ in range(2):  # a replay
        sink.send(settled.build(Signal.LOGS, request.SerializeToString()))
    stop(sink)
    pool = ConnectionPool(store_config.folder / "spans.db")
    (event,) = StoreCatalog(pool).list_events(10)
    pool.close()
    assert (event.name, event.time_ns, event.trace_id) == ("llmprism.finding", 5, b"t" * 16)
    assert event.attributes == {"llmprism.finding.kind": "slow_worker"}
    assert settled.count == 2
    assert b"a prompt" not in (store_config.folder / "spans.db").read_bytes()


def test_metrics_are_remembered_by_their_latest_value(sink: StoreSink) -> None:
    settled = Settled()
    for value in (1.0, 3.0):
        request = ExportMetricsServiceRequest()
        metrics = request.resource_metrics.add().scope_metrics.add().metrics
        gauge = metrics.add(name="llmprism.engine.kv_usage", unit="{ratio}")
        gauge.gauge.data_points.add(as_double=value, time_unix_nano=1)
        histogram = metrics.add(name="llmprism.step.cycle", unit="s")
        histogram.histogram.data_points.add(sum=value, count=2)
        metrics.add(name="somebody.else").gauge.data_points.add(as_int=1)
        sink.send(settled.build(Signal.METRICS, request.SerializeToString()))
    sink.send(settled.build(Signal.METRICS, b"\xff"))
    stop(sink)
    points = {point.metric: (point.value, point.count) for point in sink.latest_metrics.read_all()}
    assert points == {"llmprism.engine.kv_usage": (3.0, None), "llmprism.step.cycle": (3.0, 2)}
    assert settled.count == 3


def test_readers_see_whole_batches_while_the_writer_writes(
    sink: StoreSink, store_config: StoreConfig, make_request: Make
) -> None:
    pool = ConnectionPool(store_config.folder / "spans.db")
    reader = StoreReader(pool, ())
    problems: list[str] = []
    is_done = threading.Event()

    def read_on() -> None:
        while not is_done.is_set():
            found = reader.find_traces(TraceQuery(limit=50))
            counts = [len(trace.spans) for trace in reader.read_traces(found.trace_ids, 10_000)]
            problems.extend(f"{count} spans of 20" for count in counts if count != 20)

    threads = [threading.Thread(target=read_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    settled = Settled()
    for trace in range(1, 101):
        sink.send(
            settled.build(Signal.TRACES, make_request(*({"trace": trace, "span": n} for n in range(1, 21))))
        )
    stop(sink)
    is_done.set()
    for thread in threads:
        thread.join()
    pool.close()
    assert problems == []
    assert settled.count == 100


def test_a_folder_that_cannot_be_made_is_said_at_start(tmp_path: Path, counters: Counters) -> None:
    (tmp_path / "file").write_text("in the way")
    sink = StoreSink(StoreConfig(tmp_path / "file" / "data"), counters)
    with pytest.raises(StoreUnusableError, match=r"cannot keep spans in .*/file/data: .*; check"):
        sink.start()
