# The store over time: it forgets, shrinks, survives damage, refuses company, and changes version.
import os
import random
import sqlite3
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.config import StoreConfig
from otel_llmprism.exporters.store.connection_pool import ConnectionPool, StoreUnreadableError
from otel_llmprism.exporters.store.database import StoreInUseError
from otel_llmprism.exporters.store.reader import StoreReader
from otel_llmprism.exporters.store.retention import MAX_BLOCKS_A_PASS
from otel_llmprism.exporters.store.scan_columns import SpanColumns
from otel_llmprism.exporters.store.schema import StoreVersionError
from otel_llmprism.exporters.store.searchable import RESOURCE_KEYS, SPAN_KEYS
from otel_llmprism.exporters.store.store import SpanStore
from otel_llmprism.exporters.store.stored import TraceQuery

Make = Callable[..., bytes]
GOLDEN = Path(__file__).parents[2] / "golden" / "store"
COLUMNS = SpanColumns(SPAN_KEYS, RESOURCE_KEYS)


def fill(store: SpanStore, make_request: Make, first: int, count: int, *, spans: int = 50) -> None:
    random_bytes = random.Random(first)  # what does not compress, so that sizes are real
    for trace in range(first, first + count):
        padding = {"padding": random_bytes.randbytes(100).hex()}
        payload = make_request(
            *(
                {"trace": trace, "span": n, "name": f"op{trace}", "attributes": padding}
                for n in range(1, spans + 1)
            )
        )
        store.write_spans(payload, COLUMNS.read_rows(payload))


def forget_all_due(store: SpanStore) -> int:
    forgotten = 0
    for _ in range(1000):
        one_pass = store.forget_due()
        assert one_pass.blocks <= MAX_BLOCKS_A_PASS
        forgotten += one_pass.spans
        if one_pass.is_done:
            return forgotten
    pytest.fail("retention never came to an end")


def test_files_are_private(store: SpanStore, store_config: StoreConfig, make_request: Make) -> None:
    fill(store, make_request, 1, 1)
    assert stat.S_IMODE(store_config.folder.stat().st_mode) == 0o700
    for path in store_config.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_spans_are_forgotten_by_age(store_config: StoreConfig, make_request: Make) -> None:
    now = [1_000 * 10**9]
    store = SpanStore(replace(store_config, max_age_s=60), lambda: now[0])
    fill(store, make_request, 1, 3)
    now[0] += 50 * 10**9
    fill(store, make_request, 4, 2)
    assert forget_all_due(store) == 0
    now[0] += 20 * 10**9
    assert forget_all_due(store) == 150
    pool = ConnectionPool(store.path)
    catalog = StoreCatalog(pool)
    assert catalog.measure_size().spans == 100
    assert [name for _, name, _ in catalog.list_operations()] == ["op4", "op5"]
    pool.close()
    store.close()


def test_size_stays_bounded_and_the_newest_stay(store_config: StoreConfig, make_request: Make) -> None:
    bound = 1 << 20
    store = SpanStore(replace(store_config, max_bytes=bound), time.time_ns)
    for first in range(1, 200, 10):
        fill(store, make_request, first, 10)
        forget_all_due(store)
        assert store.measure_used() <= bound
    pool = ConnectionPool(store.path)
    found = StoreReader(pool, ()).read_traces([(200).to_bytes(16, "big"), (1).to_bytes(16, "big")], 10_000)
    assert [int.from_bytes(trace.trace_id, "big") for trace in found] == [200]
    pool.close()
    store.close()
    assert store.path.stat().st_size <= 1.3 * bound


def test_the_file_shrinks_when_the_bound_is_lowered(store_config: StoreConfig, make_request: Make) -> None:
    store = SpanStore(store_config, time.time_ns)
    fill(store, make_request, 1, 100)
    store.close()
    before = store.path.stat().st_size
    store = SpanStore(replace(store_config, max_bytes=before // 4), time.time_ns)
    forget_all_due(store)
    store.close()
    assert store.path.stat().st_size <= before // 3


def test_links_and_tags_of_forgotten_spans_go_with_them(
    store_config: StoreConfig, make_request: Make
) -> None:
    now = [10**18]
    store = SpanStore(replace(store_config, max_age_s=1), lambda: now[0])
    payload = make_request({"links": [(5, 5)], "attributes": {"llmprism.step.kind": "decode"}})
    store.write_spans(payload, COLUMNS.read_rows(payload))
    now[0] += 2 * 10**9
    forget_all_due(store)
    store.close()
    with sqlite3.connect(store.path) as connection:
        for table in ("span", "block", "link", "tag", "operation", "text"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    connection.close()


def test_a_second_process_is_refused(store: SpanStore, store_config: StoreConfig) -> None:
    with pytest.raises(
        StoreInUseError, match=f"in use by process {os.getpid()}; stop it or choose another --data"
    ):
        SpanStore(store_config, time.time_ns)


def test_a_file_that_is_no_database_is_moved_aside(store_config: StoreConfig, make_request: Make) -> None:
    store_config.folder.mkdir()
    path = store_config.folder / "spans.db"
    path.write_bytes(b"this was never a database" * 100)
    store = SpanStore(store_config, time.time_ns)
    fill(store, make_request, 1, 1)
    store.close()
    assert (store_config.folder / "spans.db.damaged").read_bytes().startswith(b"this was never")


def test_a_file_damaged_in_the_middle_is_moved_aside_at_start(
    store_config: StoreConfig, make_request: Make, caplog: pytest.LogCaptureFixture
) -> None:
    store = SpanStore(store_config, time.time_ns)
    fill(store, make_request, 1, 20)
    store.close()
    overwrite_pages(store.path)
    store = SpanStore(store_config, time.time_ns)
    fill(store, make_request, 1, 1)
    store.close()
    assert (store_config.folder / "spans.db.damaged").exists()
    assert "the store was damaged" in caplog.text


def test_damage_under_way_is_survived(store_config: StoreConfig, make_request: Make) -> None:
    store = SpanStore(store_config, time.time_ns)
    fill(store, make_request, 1, 20)
    store.close()
    store = SpanStore(store_config, time.time_ns)
    overwrite_pages(store.path)
    store._connection.execute("PRAGMA shrink_memory")  # so that pages are read from the file again
    fill(store, make_request, 100, 20)  # meets the damage, moves it aside, writes to a new file
    pool = ConnectionPool(store.path)
    assert StoreReader(pool, ()).read_traces([(119).to_bytes(16, "big")], 100)
    pool.close()
    store.close()
    assert (store_config.folder / "spans.db.damaged").exists()


def test_a_reader_of_a_damaged_file_says_so(store_config: StoreConfig, make_request: Make) -> None:
    store = SpanStore(store_config, time.time_ns)
    fill(store, make_request, 1, 20)
    store.close()
    overwrite_pages(store.path)
    pool = ConnectionPool(store.path)
    with pytest.raises(StoreUnreadableError, match=r"damaged|cannot be"):
        StoreReader(pool, ()).read_traces([(n).to_bytes(16, "big") for n in range(1, 20)], 10_000)
    pool.close()


def test_readers_follow_to_the_new_file(store_config: StoreConfig, make_request: Make) -> None:
    store = SpanStore(store_config, time.time_ns)
    pool = ConnectionPool(store.path)
    reader = StoreReader(pool, ())
    fill(store, make_request, 1, 1)
    assert len(reader.find_traces(TraceQuery()).trace_ids) == 1
    store.close()
    store.path.rename(store.path.with_suffix(".old"))
    store = SpanStore(store_config, time.time_ns)
    assert not reader.find_traces(TraceQuery()).trace_ids
    pool.close()
    store.close()


def test_the_version_before_is_brought_up_with_its_spans(
    store_config: StoreConfig, make_request: Make
) -> None:
    store_config.folder.mkdir()
    connection = sqlite3.connect(store_config.folder / "spans.db")
    connection.executescript((GOLDEN / "version_0.sql").read_text())
    connection.close()
    store = SpanStore(store_config, time.time_ns)
    fill(store, make_request, 500, 1)
    pool = ConnectionPool(store.path)
    (trace,) = StoreReader(pool, SPAN_KEYS).read_traces([(1).to_bytes(16, "big")], 10)
    assert trace.spans[0].detail.attributes == {"llmprism.step.kind": "decode"}
    found = StoreReader(pool, SPAN_KEYS).find_traces(TraceQuery(tags={"llmprism.step.kind": "decode"}))
    assert found.trace_ids == [(1).to_bytes(16, "big")]
    assert StoreCatalog(pool).list_events(10) == []
    pool.close()
    store.close()


def set_version(path: Path, version: int, oldest_reader: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE later (id INTEGER)")
    connection.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
    connection.execute("UPDATE meta SET value = ? WHERE key = 'oldest_reader'", (oldest_reader,))
    connection.commit()
    connection.close()


def test_the_version_after_is_used_when_it_allows_us(store_config: StoreConfig, make_request: Make) -> None:
    SpanStore(store_config, time.time_ns).close()
    set_version(store_config.folder / "spans.db", 2, 1)
    store = SpanStore(store_config, time.time_ns)
    fill(store, make_request, 1, 1)
    store.close()
    pool = ConnectionPool(store_config.folder / "spans.db")
    found = StoreReader(pool, ()).read_traces([(1).to_bytes(16, "big")], 10_000)
    pool.close()
    assert [int.from_bytes(trace.trace_id, "big") for trace in found] == [1]


def test_a_store_too_new_is_left_as_it_is(store_config: StoreConfig) -> None:
    SpanStore(store_config, time.time_ns).close()
    path = store_config.folder / "spans.db"
    set_version(path, 3, 2)
    with pytest.raises(StoreVersionError, match="newer program"):
        SpanStore(store_config, time.time_ns)
    with pytest.raises(StoreVersionError):  # and the lock was given up
        SpanStore(store_config, time.time_ns)
    assert path.exists()


def overwrite_pages(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        for at in range(4096, size - 4096, 3 * 4096):
            file.seek(at)
            file.write(b"\xa5" * 4096)
