# OTLP requests as tables: the scanner's rows become columns without a copy, texts stay in the payload.
# Bytes in, tables out; raises MalformedRequestError as the scanner does.
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.logs import LogTable
from otel_llmprism.model.loss import Loss
from otel_llmprism.model.metrics import MetricTable
from otel_llmprism.model.signals import Signal
from otel_llmprism.model.spans import Origins, ResourceTable, ScopeTable, SpanTable
from otel_llmprism.model.strings import TextColumn
from otel_llmprism.model.values import ValueColumn
from otel_llmprism.native.otlp import (
    LOG_DTYPE,
    METRIC_DTYPE,
    NO_KEYS,
    RESOURCE_DTYPE,
    SCOPE_DTYPE,
    SPAN_DTYPE,
    VALUE_DTYPE,
    KeySelection,
    Scan,
    scan,
)
from otel_llmprism.native.otlp_layout import Layout

Rows = npt.NDArray[Any]  # structured: columns by name


def read_spans(payload: bytes, keys: KeySelection = NO_KEYS) -> SpanTable:
    """Return the spans of a trace request with the values of the selected keys."""
    return wrap_spans(payload, scan(payload, Signal.TRACES, keys), keys)


def wrap_spans(payload: bytes, found: Scan, keys: KeySelection) -> SpanTable:
    """Return what an earlier scan of `payload` with `keys` found."""
    rows = _view(found.records, SPAN_DTYPE)
    return SpanTable(
        name=_texts(payload, rows, "name"),
        attributes=_values(payload, found.values, keys.record_keys),
        origins=_wrap_origins(payload, found, keys),
        **_columns(rows, "start_ns end_ns trace_id span_id parent_span_id kind status_code"),
        **_columns(rows, "event_count link_count resource scope flags offset length"),
    )


def read_logs(payload: bytes, keys: KeySelection = NO_KEYS) -> LogTable:
    """Return the records of a logs request with the values of the selected keys."""
    return wrap_logs(payload, scan(payload, Signal.LOGS, keys), keys)


def wrap_logs(payload: bytes, found: Scan, keys: KeySelection) -> LogTable:
    """Return what an earlier scan of `payload` with `keys` found."""
    rows = _view(found.records, LOG_DTYPE)
    return LogTable(
        event_name=_texts(payload, rows, "event_name"),
        body=_texts(payload, rows, "body"),
        attributes=_values(payload, found.values, keys.record_keys),
        origins=_wrap_origins(payload, found, keys),
        **_columns(rows, "time_ns observed_ns trace_id span_id severity body_type"),
        **_columns(rows, "resource scope flags offset length"),
    )


def read_metrics(payload: bytes, keys: KeySelection = NO_KEYS) -> MetricTable:
    """Return the metrics of a metrics request; `keys` selects resource attributes."""
    found = scan(payload, Signal.METRICS, keys)
    rows = _view(found.records, METRIC_DTYPE)
    return MetricTable(
        name=_texts(payload, rows, "name"),
        unit=_texts(payload, rows, "unit"),
        origins=_wrap_origins(payload, found, keys),
        **_columns(rows, "type temporality is_monotonic point_count"),
        **_columns(rows, "resource scope flags offset length"),
    )


def _wrap_origins(payload: bytes, found: Scan, keys: KeySelection) -> Origins:
    resources = _view(found.resources, RESOURCE_DTYPE)
    scopes = _view(found.scopes, SCOPE_DTYPE)
    return Origins(
        ResourceTable(
            attributes=_values(payload, found.resource_values, keys.resource_keys),
            **_columns(resources, "first_record record_count"),
        ),
        ScopeTable(
            name=_texts(payload, scopes, "name"),
            version=_texts(payload, scopes, "version"),
            **_columns(scopes, "resource first_record record_count"),
        ),
        Loss(malformed=found.bad_id_count),
    )


def _view(buffer: bytes, layout: Layout) -> Rows:
    return np.frombuffer(buffer, dtype=np.dtype(layout))


def _columns(rows: Rows, names: str) -> dict[str, Any]:
    return {name: rows[name] for name in names.split()}


def _texts(payload: bytes, rows: Rows, name: str) -> TextColumn:
    return TextColumn(payload, rows[f"{name}_offset"], rows[f"{name}_length"])


def _values(payload: bytes, buffer: bytes, keys: Sequence[str]) -> Mapping[str, ValueColumn]:
    if not keys:
        return {}
    columns = _view(buffer, VALUE_DTYPE).reshape(-1, len(keys)).T
    return {
        key: ValueColumn(payload, column["type"], column["bits"], column["offset"], column["length"])
        for key, column in zip(keys, columns, strict=True)
    }
