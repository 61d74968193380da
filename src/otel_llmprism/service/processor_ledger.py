# Ledger records on the log path: cut out of requests by their scope, deduplicated, and handed on as chunks;
# whatever else the request holds passes byte for byte. Knows no step: the consumer reads the chunks.
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from otel_llmprism.model.logs import LogTable
from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import KeySelection, MalformedRequestError, scan, select
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.receivers.otlp_tables import wrap_logs
from otel_llmprism.semconv import ledger as names
from otel_llmprism.semconv.resource import ENGINE_ID, ENGINE_RUN

_KEYS = KeySelection((names.VERSION, names.NODE, names.SEQ, names.LAST_STEP), (ENGINE_ID, ENGINE_RUN))
_SCOPE = names.SCOPE.encode()
# Enough for hours of one engine or minutes of a fleet; a duplicate older than that is counted twice.
_MAX_REMEMBERED = 1 << 16


@dataclass(frozen=True, slots=True)
class LedgerChunk:
    """One ledger record; `sender` with `seq` names it for ever."""

    engine: str
    run: str
    node: str
    event: str  # names.EVENT_LEDGER or names.EVENT_HOST
    seq: int
    version: int
    last_step: int | None
    body: bytes

    @property
    def identity(self) -> tuple[str, str, str, str, int]:
        return (self.engine, self.run, self.node, self.event, self.seq)


class LedgerStage:
    """A Stage. `take_chunks` gets what is new, and how many were duplicates, in order of arrival."""

    def __init__(self, take_chunks: Callable[[list[LedgerChunk], int], None]) -> None:
        self._take_chunks = take_chunks
        self._seen: OrderedDict[tuple[str, str, str, str, int], None] = OrderedDict()

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        # A search for the scope's name costs a thousandth of a scan and spares it for all other logs.
        if batch.signal is not Signal.LOGS or _SCOPE not in batch.payload:
            return (batch,)
        try:
            found = scan(batch.payload, batch.signal, _KEYS)
        except MalformedRequestError:
            return (batch,)
        table = wrap_logs(batch.payload, found, _KEYS)
        is_ledger = table.origins.scopes.name.match_text(_SCOPE)[table.scope]
        if not is_ledger.any():
            return (batch,)
        chunks = list(read_chunks(table, np.flatnonzero(is_ledger).tolist()))
        new = [chunk for chunk in chunks if self._is_new(chunk)]
        self._take_chunks(new, len(chunks) - len(new))
        if is_ledger.all():
            batch.receipt.settle()
            return ()
        return (replace(batch, payload=select(batch.payload, found, (~is_ledger).tobytes())),)

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        """Give nothing: nothing is held."""
        del due_ns
        return ()

    def _is_new(self, chunk: LedgerChunk) -> bool:
        if chunk.identity in self._seen:
            return False
        self._seen[chunk.identity] = None
        if len(self._seen) > _MAX_REMEMBERED:
            self._seen.popitem(last=False)
        return True


def read_chunks(table: LogTable, rows: Iterable[int]) -> Iterator[LedgerChunk]:
    """Yield the ledger records at `rows`; what is missing reads as empty or 0."""
    resources = table.origins.resources.attributes
    for row in rows:
        resource = int(table.resource[row])
        last_step = table.attributes[names.LAST_STEP][row]
        yield LedgerChunk(
            engine=str(resources[ENGINE_ID][resource] or ""),
            run=str(resources[ENGINE_RUN][resource] or ""),
            node=str(table.attributes[names.NODE][row] or ""),
            event=table.event_name[row],
            seq=_to_int(table.attributes[names.SEQ][row]),
            version=_to_int(table.attributes[names.VERSION][row]),
            last_step=None if last_step is None else _to_int(last_step),
            body=table.body.read_raw(row),
        )


def _to_int(value: object) -> int:
    return value if isinstance(value, int) else 0
