# Log records as columns: views over what one export request held. Times are host realtime.
from collections.abc import Mapping
from dataclasses import dataclass

from otel_llmprism.model.spans import I32, U8, U32, U64, Origins
from otel_llmprism.model.steps import Table
from otel_llmprism.model.strings import TextColumn
from otel_llmprism.model.values import ValueColumn


@dataclass(frozen=True, slots=True)
class LogTable(Table):
    time_ns: U64
    observed_ns: U64
    trace_id: U8  # [n, 16]; zeros: none
    span_id: U8  # [n, 8]
    severity: I32
    event_name: TextColumn
    body_type: U32  # ValueType
    body: TextColumn  # read_raw() for bytes; of a number, its wire bytes
    resource: U32
    scope: U32
    flags: U32
    offset: U32
    length: U32
    attributes: Mapping[str, ValueColumn]
    origins: Origins
