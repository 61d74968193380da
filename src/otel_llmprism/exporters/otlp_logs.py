# Ledger chunks and host samples -> one ExportLogsServiceRequest, exactly as the ledger goes on the wire:
# a scope and event names of its own, opaque bytes as body, no severity. Pure.
from collections.abc import Iterable
from dataclasses import dataclass

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from otel_llmprism.exporters.otlp_attributes import Attributes, build_scope, to_key_values, to_resource
from otel_llmprism.semconv import ledger as names


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One body with what a reader needs before it opens it. Steps are -1 where there are none."""

    event_name: str
    body: bytes
    version: int
    node: str
    seq: int
    time_ns: int
    first_step: int = -1
    last_step: int = -1


def encode_ledger_records(resource: Attributes, records: Iterable[LedgerRecord], version: str = "") -> bytes:
    """Return one request that carries `records` in order."""
    request = ExportLogsServiceRequest()
    resource_logs = request.resource_logs.add()
    resource_logs.resource.CopyFrom(to_resource(resource))
    scope_logs = resource_logs.scope_logs.add()
    scope_logs.scope.CopyFrom(build_scope(names.SCOPE, version))
    scope_logs.log_records.extend(_to_log_record(record) for record in records)
    encoded: bytes = request.SerializeToString()
    return encoded


def _to_log_record(record: LedgerRecord) -> LogRecord:
    if len(record.body) > names.MAX_BODY_BYTES:
        raise ValueError(f"a ledger body of {len(record.body)} bytes is above {names.MAX_BODY_BYTES}")
    attributes: dict[str, str | int] = {
        names.VERSION: record.version,
        names.NODE: record.node,
        names.SEQ: record.seq,
    }
    if record.first_step >= 0:
        attributes |= {names.FIRST_STEP: record.first_step, names.LAST_STEP: record.last_step}
    return LogRecord(
        time_unix_nano=record.time_ns,
        observed_time_unix_nano=record.time_ns,
        event_name=record.event_name,
        body=AnyValue(bytes_value=record.body),
        attributes=to_key_values(attributes),
    )
