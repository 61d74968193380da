# Ledger tables and host samples -> numbered records: kept on the node, and shipped as log records. The
# numbers go on after a restart, since readers tell repeats by them.
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from otel_llmprism.exporters.ledger_chunks import ChunkTooLargeError, encode_chunk, encode_host_chunk
from otel_llmprism.exporters.otlp_attributes import Attributes
from otel_llmprism.exporters.otlp_logs import LedgerRecord, encode_ledger_records
from otel_llmprism.model.hosts import HostTables
from otel_llmprism.model.steps import Anchor, LedgerTables
from otel_llmprism.native import ledger_layout
from otel_llmprism.native.ledger_layout import ChunkAnchor
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv import ledger as names
from otel_llmprism.semconv.metric import LOST

_SEQ_FILE = "seq.json"
_SEQ_FILE_BYTES = 128  # more than two names and numbers ever take
_NO_STEP = (1 << 64) - 1
_MAX_REQUEST_BYTES = 2 << 20  # of bodies; gRPC servers take 4 MiB unless told otherwise


class LedgerShipper:
    """Collects records between two shipments. `keep` puts one on the node's disk and never raises."""

    def __init__(
        self,
        folder: Path,
        node: str,
        resource: Attributes,
        keep: Callable[[LedgerRecord], object],
        *,
        version: str,
        counters: Counters,
    ) -> None:
        self._folder = folder
        self._node = node
        self._resource = resource
        self._keep = keep
        self._version = version
        self._counters = counters
        self._next_seq = _read_numbers(folder / _SEQ_FILE)
        self._records: list[LedgerRecord] = []

    def add_tables(self, tables: LedgerTables, anchor: Anchor) -> None:
        """Encode one chunk, keep it on the node, and have it ready to ship.

        Steps whose running set alone fills a chunk are counted as lost; their spans and metrics go on.
        """
        steps = tables.steps.step
        first, last = (int(steps[0]), int(steps[-1])) if len(steps) else (_NO_STEP, _NO_STEP)
        place = ChunkAnchor(first, last, anchor.monotonic_ns, anchor.realtime_ns)
        try:
            body = encode_chunk(tables, place)
        except ChunkTooLargeError:
            self._counters.add(LOST, max(1, len(steps)), stage="ledger", cause="chunk_too_large")
            return
        known = (first, last) if len(steps) else (-1, -1)
        self._add(names.EVENT_LEDGER, body, ledger_layout.VERSION, anchor.realtime_ns, known)

    def add_host_samples(self, tables: HostTables, anchor: Anchor) -> None:
        place = ChunkAnchor(_NO_STEP, _NO_STEP, anchor.monotonic_ns, anchor.realtime_ns)
        body = encode_host_chunk(tables, place)
        self._add(names.EVENT_HOST, body, ledger_layout.VERSION, anchor.realtime_ns, (-1, -1))

    def take_request(self) -> tuple[bytes, int]:
        """Return a request for the oldest that was collected and how many records it has; empty for none.

        Ask again until there is none: a backlog is more than one request may hold.
        """
        count, size = 0, 0
        for record in self._records:
            size += len(record.body)
            if count and size > _MAX_REQUEST_BYTES:
                break
            count += 1
        records, self._records = self._records[:count], self._records[count:]
        if not records:
            return b"", 0
        return encode_ledger_records(self._resource, records, self._version), len(records)

    def _add(self, event: str, body: bytes, version: int, time_ns: int, steps: tuple[int, int]) -> None:
        seq = self._next_seq.get(event, 0)
        record = LedgerRecord(event, body, version, self._node, seq, time_ns, *steps)
        self._next_seq[event] = seq + 1
        _write_numbers(self._folder / _SEQ_FILE, self._next_seq)
        self._keep(record)
        self._records.append(record)


def _write_numbers(path: Path, numbers: dict[str, int]) -> None:
    """Keep the numbers for a restart. Written in place, so that no kill leaves the file empty."""
    text = json.dumps(numbers).ljust(_SEQ_FILE_BYTES).encode()
    # A full folder refuses at most the first write, and costs nothing now: the records do not need the file.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            file.write(text)


def _read_numbers(path: Path) -> dict[str, int]:
    try:
        numbers = json.loads(path.read_text(encoding="utf-8"))
        return {str(event): int(seq) for event, seq in numbers.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
