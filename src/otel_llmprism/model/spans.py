# Spans as columns: views over what one export request held, with their resources. Row numbers follow the
# wire order. Times are host realtime, as OTLP has them.
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.loss import Loss
from otel_llmprism.model.steps import Table
from otel_llmprism.model.strings import TextColumn
from otel_llmprism.model.values import ValueColumn

I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

BAD_ID = 1  # a trace or span id is missing, zero or of a wrong length
BAD_UTF8 = 2


@dataclass(frozen=True, slots=True)
class ResourceTable(Table):
    """One row for each resource of the request."""

    first_record: U32
    record_count: U32
    attributes: Mapping[str, ValueColumn]


@dataclass(frozen=True, slots=True)
class ScopeTable(Table):
    """One row for each instrumentation scope of the request."""

    resource: U32
    first_record: U32
    record_count: U32
    name: TextColumn
    version: TextColumn


@dataclass(frozen=True, slots=True)
class Origins:
    """Where the records of one request came from, and what of it was lost."""

    resources: ResourceTable
    scopes: ScopeTable
    loss: Loss


@dataclass(frozen=True, slots=True)
class SpanTable(Table):
    start_ns: U64
    end_ns: U64
    trace_id: U8  # [n, 16]
    span_id: U8  # [n, 8]
    parent_span_id: U8  # [n, 8]; zeros: no parent
    name: TextColumn
    kind: I32
    status_code: I32
    event_count: U32
    link_count: U32
    resource: U32  # row of origins.resources
    scope: U32  # row of origins.scopes
    flags: U32
    offset: U32  # of the span's bytes in the payload
    length: U32
    attributes: Mapping[str, ValueColumn]
    origins: Origins
