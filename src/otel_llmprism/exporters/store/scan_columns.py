# Turns the scan of one trace request into the columns that the store writes: ids, interned texts,
# clamped times, and the hashes of the indexed attributes. Knows no database.
from collections.abc import Iterator
from typing import Any

import numpy as np

from otel_llmprism.exporters.store.searchable import MAX_INDEXED_VALUE, hash_tag
from otel_llmprism.exporters.store.span_rows import MAX_INT64, Piece, SpanRows
from otel_llmprism.native import otlp
from otel_llmprism.native.otlp_layout import BOOL, DOUBLE, INT, RECORD_BAD_ID, STRING

Array = np.ndarray[Any, np.dtype[Any]]

UNNAMED_SERVICE = "unknown_service"
SERVICE_NAME = "service.name"

_SPAN = np.dtype(otlp.SPAN_DTYPE)
_RESOURCE = np.dtype(otlp.RESOURCE_DTYPE)
_SCOPE = np.dtype(otlp.SCOPE_DTYPE)
_VALUE = np.dtype(otlp.VALUE_DTYPE)
_NO_PARENT = bytes(8)


class SpanColumns:
    """Scans trace requests for a fixed choice of indexed keys."""

    def __init__(self, span_keys: tuple[str, ...], resource_keys: tuple[str, ...]) -> None:
        if SERVICE_NAME not in resource_keys:
            resource_keys = (SERVICE_NAME, *resource_keys)
        self._keys = otlp.KeySelection(span_keys, resource_keys)

    def read_rows(self, payload: bytes) -> SpanRows:
        """Return the columns of all spans in `payload`; raises MalformedRequestError."""
        scan = otlp.scan(payload, "traces", self._keys)
        spans = np.frombuffer(scan.records, _SPAN)
        spans = spans[spans["flags"] & RECORD_BAD_ID == 0]  # receivers cut them out; two would be one
        resources = np.frombuffer(scan.resources, _RESOURCE)
        scopes = np.frombuffer(scan.scopes, _SCOPE)
        shape = (len(resources), len(self._keys.resource_keys))
        resource_values = np.frombuffer(scan.resource_values, _VALUE).reshape(shape)
        services = _read_services(payload, resource_values, self._keys.resource_keys.index(SERVICE_NAME))
        parents = _split_ids(spans["parent_span_id"], 8)
        starts, durations = _clamp_times(spans["start_ns"], spans["end_ns"])
        return SpanRows(
            trace_ids=_split_ids(spans["trace_id"], 16),
            span_ids=_split_ids(spans["span_id"], 8),
            parent_ids=[b"" if parent == _NO_PARENT else parent for parent in parents],
            services=[services[index] for index in spans["resource"].tolist()],
            names=_read_texts(payload, spans["name_offset"], spans["name_length"]),
            kinds=spans["kind"].tolist(),
            statuses=spans["status_code"].tolist(),
            starts_ns=starts,
            durations_ns=durations,
            offsets=spans["offset"].tolist(),
            lengths=spans["length"].tolist(),
            resources=spans["resource"].tolist(),
            scopes=spans["scope"].tolist(),
            link_counts=spans["link_count"].tolist(),
            resource_pieces=_list_pieces(resources, "resource"),
            scope_pieces=_list_pieces(scopes, "scope"),
            tag_hashes=frozenset(self._hash_tags(payload, scan.values, resource_values)),
        )

    def _hash_tags(self, payload: bytes, values: bytes, resource_values: Array) -> Iterator[int]:
        span_values = np.frombuffer(values, _VALUE).reshape(-1, max(1, len(self._keys.record_keys)))
        for keys, cells in (
            (self._keys.record_keys, span_values),
            (self._keys.resource_keys, resource_values),
        ):
            present = np.flatnonzero(cells["type"].any(axis=0)) if len(cells) else ()
            for column in present:
                for text in _list_values(payload, cells[:, column]):
                    yield hash_tag(keys[column], text)


def _list_values(payload: bytes, cells: Array) -> Iterator[bytes]:
    """Give the distinct values of one key in the canonical text form that a search compares with."""
    types = cells["type"]
    strings = cells[(types == STRING) & (cells["length"] <= MAX_INDEXED_VALUE)]
    places = zip(strings["offset"].tolist(), strings["length"].tolist(), strict=True)
    yield from {payload[offset : offset + length] for offset, length in places}
    for bits in np.unique(cells["bits"][types == INT]).view(np.int64).tolist():
        yield b"%d" % bits
    for bits in np.unique(cells["bits"][types == BOOL]).tolist():
        yield b"true" if bits else b"false"
    for number in np.unique(cells["bits"][types == DOUBLE]).view(np.float64).tolist():
        yield format_double(number).encode()


def format_double(number: float) -> str:
    """Return a double as a search writes it: whole numbers without a fraction."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _read_services(payload: bytes, values: Array, column: int) -> list[str]:
    cells = values[:, column]
    rows = zip(cells["type"].tolist(), cells["offset"].tolist(), cells["length"].tolist(), strict=True)
    return [
        payload[offset : offset + length].decode("utf-8", "replace") or UNNAMED_SERVICE
        if kind == STRING
        else UNNAMED_SERVICE
        for kind, offset, length in rows
    ]


def _read_texts(payload: bytes, offsets: Array, lengths: Array) -> list[str]:
    known: dict[bytes, str] = {}
    texts = []
    for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
        raw = payload[offset : offset + length]
        text = known.get(raw)
        if text is None:
            text = known[raw] = raw.decode("utf-8", "replace")
        texts.append(text)
    return texts


def _clamp_times(starts: Array, ends: Array) -> tuple[list[int], list[int]]:
    # The wire has 64 unsigned bits, the database 63: a time in the year 2262 or later is told as 2262.
    ends = np.maximum(starts, ends)
    top = np.uint64(MAX_INT64)
    return np.minimum(starts, top).tolist(), np.minimum(ends - starts, top).tolist()


def _split_ids(column: Array, size: int) -> list[bytes]:
    raw = np.ascontiguousarray(column).tobytes()
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def _list_pieces(rows: Array, name: str) -> list[Piece]:
    return list(zip(rows[f"{name}_offset"].tolist(), rows[f"{name}_length"].tolist(), strict=True))
