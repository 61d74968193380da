# OTLP log requests, or stored records -> ledger tables and host samples, each record once. Other records in
# a request are not looked at. Whatever is wrong with a record is counted and costs that record only.
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from otel_llmprism.model.hosts import HostTables
from otel_llmprism.model.logs import LogTable
from otel_llmprism.model.steps import ChunkTable, LedgerTables
from otel_llmprism.model.values import ValueType
from otel_llmprism.native.ledger import DecodedChunks, decode_chunks
from otel_llmprism.native.ledger_layout import FREE_ROWS, parse_anchor
from otel_llmprism.native.ledger_schema import Table
from otel_llmprism.native.otlp import KeySelection
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger_seen import SeenNumbers
from otel_llmprism.receivers.ledger_tables import build_chunk_table, wrap_columns, wrap_host_columns
from otel_llmprism.receivers.otlp_tables import read_logs
from otel_llmprism.semconv import ledger as names
from otel_llmprism.semconv import resource as resource_names
from otel_llmprism.semconv.metric import LOST

_STAGE = "ledger"
_RESOURCE_KEYS = (resource_names.ENGINE_ID, resource_names.ENGINE_RUN)
_KEYS = KeySelection((names.NODE, names.SEQ), _RESOURCE_KEYS)
# Chunks decoded together: enough to hide the cost of a call, few enough to stay within some 200 MB
# whatever the bytes say.
_ROWS_AT_ONCE = 2_000_000
MAX_SOURCES = 10_000
# How long the texts of a row are.
_REQUEST_TEXTS: tuple[str, ...] = ("arrivals.request_id_bytes", "arrivals.external_rest_bytes")
_SERIES_TEXTS: tuple[str, ...] = ("series.name_bytes",)


@dataclass(frozen=True, slots=True)
class LedgerSource:
    """Whose ledger it is; seq counts within this and the event name."""

    engine_id: str
    run: str  # 32 hex digits
    node: str


@dataclass(frozen=True, slots=True)
class LedgerBody:
    source: LedgerSource
    event_name: str
    seq: int
    body: bytes


@dataclass(frozen=True, slots=True)
class LedgerBatch:
    """Chunks of one source, decoded together; rows in the order of the chunks."""

    source: LedgerSource
    chunks: ChunkTable
    tables: LedgerTables


@dataclass(frozen=True, slots=True)
class HostBatch:
    source: LedgerSource
    chunks: ChunkTable
    tables: HostTables


class LedgerReader:
    """Remembers what it read, to drop repeats; one thread."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._seen: OrderedDict[tuple[LedgerSource, str], SeenNumbers] = OrderedDict()

    def read_request(self, payload: bytes) -> Iterator[LedgerBatch | HostBatch]:
        """Yield what the ledger records of one export request say; MalformedRequestError for bad framing."""
        return self.read_bodies(self._list_bodies(read_logs(payload, _KEYS)))

    def read_bodies(self, bodies: Iterable[LedgerBody]) -> Iterator[LedgerBatch | HostBatch]:
        """Likewise for records from elsewhere; those of one source that follow each other are joined."""
        fresh = (body for body in bodies if self._is_new(body))
        for (source, event), own in groupby(fresh, key=lambda body: (body.source, body.event_name)):
            for group in _cut_groups(own):
                batch = self._decode(source, event, group)
                if batch is not None:
                    yield batch

    def _list_bodies(self, logs: LogTable) -> Iterator[LedgerBody]:
        scopes, resources = logs.origins.scopes, logs.origins.resources
        is_ours = scopes.name.match_text(names.SCOPE)[logs.scope]
        for row in np.flatnonzero(is_ours).tolist():
            resource = int(logs.resource[row])
            engine, run = (resources.attributes[key][resource] for key in _RESOURCE_KEYS)
            node, seq = logs.attributes[names.NODE][row], logs.attributes[names.SEQ][row]
            event = logs.event_name[row]
            texts = (engine, run, node)
            if (
                event in {names.EVENT_LEDGER, names.EVENT_HOST}
                and logs.body_type[row] == ValueType.BYTES
                and isinstance(seq, int)
                and seq >= 0
                and all(isinstance(text, str) for text in texts)
            ):
                yield LedgerBody(LedgerSource(*map(str, texts)), event, seq, logs.body.read_raw(row))
            else:
                self._count("not_a_ledger_record")

    def _is_new(self, body: LedgerBody) -> bool:
        key = (body.source, body.event_name)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = SeenNumbers(body.seq)
            if len(self._seen) > MAX_SOURCES:
                self._seen.popitem(last=False)
        self._seen.move_to_end(key)
        missing = seen.missing_count
        is_new = seen.add(body.seq)
        self._count("chunk_missing", seen.missing_count - missing)
        self._count("duplicate", not is_new)
        return is_new

    def _decode(
        self, source: LedgerSource, event: str, group: Sequence[LedgerBody]
    ) -> LedgerBatch | HostBatch | None:
        decoded = decode_chunks([body.body for body in group])
        for _, status in decoded.refused:
            self._count(f"chunk_{status.name.lower()}")
        good = [group[position] for position in decoded.accepted]
        if misfits := _find_misfits(decoded, event):
            self._count("chunk_bad_text", len(misfits))
            good = [body for position, body in enumerate(good) if position not in misfits]
            decoded = decode_chunks([body.body for body in good])
        if not good:
            return None
        anchors = [parse_anchor(body.body) for body in good]
        chunks = build_chunk_table([body.seq for body in good], anchors, decoded.rows)
        if event == names.EVENT_HOST:
            return HostBatch(source, chunks, wrap_host_columns(decoded.columns))
        return LedgerBatch(source, chunks, wrap_columns(decoded.columns))

    def _count(self, cause: str, amount: int = 1) -> None:
        if amount:
            self._counters.add(LOST, amount, stage=_STAGE, cause=cause)


def _cut_groups(bodies: Iterable[LedgerBody]) -> Iterator[list[LedgerBody]]:
    group: list[LedgerBody] = []
    rows = 0
    for body in bodies:
        rows += FREE_ROWS + len(body.body)
        if group and rows > _ROWS_AT_ONCE:
            yield group
            group, rows = [], FREE_ROWS + len(body.body)
        group.append(body)
    if group:
        yield group


def _find_misfits(decoded: DecodedChunks, event: str) -> set[int]:
    """Return the chunks whose texts do not fill their text column: they would shift the others' texts."""
    if event == names.EVENT_LEDGER:
        owners, texts, parts = Table.ARRIVALS, Table.TEXT, _REQUEST_TEXTS
    else:
        owners, texts, parts = Table.SERIES, Table.NAMES, _SERIES_TEXTS
    sizes = sum(np.frombuffer(decoded.columns[key], "<u2").astype(np.int64) for key in parts)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.array(decoded.rows, dtype=np.int64).reshape(-1, len(Table))
    last = np.cumsum(rows[:, owners])
    own_bytes = ends[last] - ends[last - rows[:, owners]]
    return set(np.flatnonzero(own_bytes != rows[:, texts]).tolist())
