# Ledger records on the log path: cut out of requests by their scope and handed on as tables; whatever else a
# request holds passes byte for byte. Knows no step: the consumer reads the tables.
from collections.abc import Callable, Iterable
from dataclasses import replace

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import NO_KEYS, MalformedRequestError, Scan, scan, select
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch, LedgerReader
from otel_llmprism.receivers.otlp_tables import wrap_logs
from otel_llmprism.semconv import ledger as names

_SCOPE = names.SCOPE.encode()


class LedgerStage:
    """A Stage. `take` gets every record once, as tables; the reader counts what is wrong or comes again.

    `note_request` gets each request with ledger records before its tables; with `is_forwarding` the records
    go on as well.
    """

    def __init__(
        self,
        reader: LedgerReader,
        take: Callable[[LedgerBatch | HostBatch], None],
        note_request: Callable[[bytes, Scan], None] | None = None,
        *,
        is_forwarding: bool = False,
    ) -> None:
        self._reader = reader
        self._take = take
        self._note_request = note_request
        self._is_forwarding = is_forwarding

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        # A search for the scope's name costs a thousandth of a scan and spares it for all other logs.
        if batch.signal is not Signal.LOGS or _SCOPE not in batch.payload:
            return (batch,)
        try:
            found = scan(batch.payload, batch.signal)
        except MalformedRequestError:
            return (batch,)
        table = wrap_logs(batch.payload, found, NO_KEYS)
        is_ledger = table.origins.scopes.name.match_text(_SCOPE)[table.scope]
        if not is_ledger.any():
            return (batch,)
        if self._note_request is not None:
            self._note_request(batch.payload, found)
        for tables in self._reader.read_request(batch.payload):
            self._take(tables)
        if self._is_forwarding:
            return (batch,)
        if is_ledger.all():
            batch.receipt.settle()
            return ()
        return (replace(batch, payload=select(batch.payload, found, (~is_ledger).tobytes())),)

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        """Give nothing: nothing is held."""
        del due_ns
        return ()
