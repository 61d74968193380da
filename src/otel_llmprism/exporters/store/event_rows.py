# Log records -> the few that the store keeps: llmprism's own events (findings), never the ledger and
# never an application's logs, which may hold prompts.
import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from otel_llmprism.exporters.store.scan_columns import SERVICE_NAME, UNNAMED_SERVICE
from otel_llmprism.exporters.store.span_rows import MAX_INT64
from otel_llmprism.native import otlp
from otel_llmprism.native.otlp_layout import STRING
from otel_llmprism.semconv import ledger

KEPT_PREFIX: Final = "llmprism."
_NEVER: Final = {ledger.EVENT_LEDGER, ledger.EVENT_HOST}
_LOG = np.dtype(otlp.LOG_DTYPE)
_VALUE = np.dtype(otlp.VALUE_DTYPE)
_KEYS = otlp.KeySelection((), (SERVICE_NAME,))


@dataclass(frozen=True, slots=True)
class EventRow:
    digest: bytes  # of the record's bytes: a replay finds it again
    time_ns: int
    name: str
    service: str
    trace_id: bytes
    span_id: bytes
    data: bytes  # the LogRecord as it came


def read_events(payload: bytes) -> list[EventRow]:
    """Return llmprism's events among the log records of one request; raises MalformedRequestError."""
    scan = otlp.scan(payload, "logs", _KEYS)
    services = np.frombuffer(scan.resource_values, _VALUE)
    rows = []
    for log in np.frombuffer(scan.records, _LOG):
        name = _read_text(payload, log["event_name_offset"], log["event_name_length"])
        if not name.startswith(KEPT_PREFIX) or name in _NEVER:
            continue
        data = _cut(payload, log["offset"], log["length"])
        rows.append(
            EventRow(
                digest=hashlib.blake2b(data, digest_size=16).digest(),
                time_ns=min(int(log["time_ns"]) or int(log["observed_ns"]), MAX_INT64),
                name=name,
                service=_read_service(payload, services[log["resource"]]),
                trace_id=log["trace_id"].tobytes(),
                span_id=log["span_id"].tobytes(),
                data=data,
            )
        )
    return rows


def _read_service(payload: bytes, cell: np.void) -> str:
    if cell["type"] != STRING:
        return UNNAMED_SERVICE
    return _read_text(payload, cell["offset"], cell["length"]) or UNNAMED_SERVICE


def _read_text(payload: bytes, offset: np.uint32, length: np.uint32) -> str:
    return _cut(payload, offset, length).decode("utf-8", "replace")


def _cut(payload: bytes, offset: np.uint32, length: np.uint32) -> bytes:
    return payload[int(offset) : int(offset) + int(length)]
