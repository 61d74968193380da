# The store as it is, behind the benchmark's questions.
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.config import StoreConfig
from otel_llmprism.exporters.store.connection_pool import ConnectionPool
from otel_llmprism.exporters.store.reader import StoreReader
from otel_llmprism.exporters.store.searchable import RESOURCE_KEYS, SPAN_KEYS
from otel_llmprism.exporters.store.span_rows import SpanRows
from otel_llmprism.exporters.store.store import SpanStore
from otel_llmprism.exporters.store.stored import TraceQuery

MIN_DURATION_NS = 90_000_000


class SqliteEngine:
    def __init__(self, folder: Path) -> None:
        self._config = StoreConfig(folder)
        self._store = SpanStore(self._config, time.time_ns)
        self._pool = ConnectionPool(self._store.path)
        self._reader = StoreReader(self._pool, {*SPAN_KEYS, *RESOURCE_KEYS})

    def insert(self, payload: bytes, rows: SpanRows) -> int:
        return self._store.write_spans(payload, rows).spans

    def ask(self, question: str, known: dict[str, Any]) -> int:
        if question == "trace by id":
            return len(self._reader.read_traces([known["trace_id"]], 20_000)[0].spans)
        query = {
            "newest of a service": TraceQuery(service=known["service"]),
            "operation and duration": TraceQuery(
                service=known["service"], operation=known["operation"], min_duration_ns=MIN_DURATION_NS
            ),
            "indexed attribute": TraceQuery(tags={"llmprism.request.id": known["request_id"]}),
            "other attribute": TraceQuery(tags={"own.text": known["other"]}),
        }[question]
        found = self._reader.find_traces(query)
        return sum(len(trace.spans) for trace in self._reader.read_traces(found.trace_ids, 20_000))

    def delete_oldest(self, share: float) -> None:
        self._store.close()
        used = self._config.folder / "spans.db"
        bound = int(used.stat().st_size * (1 - share))
        self._store = SpanStore(replace(self._config, max_bytes=bound), time.time_ns)
        while not self._store.forget_due().is_done:
            pass

    def count(self) -> int:
        return StoreCatalog(self._pool).measure_size().spans

    def close(self) -> None:
        self._pool.close()
        self._store.close()
