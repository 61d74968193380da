# Ledger tables -> the bytes of one chunk (docs/adr/0021): per column the smallest whole number of bytes
# that holds value - base, plain or as differences, after subtracting what the schema refers it to.
# Knows no OTLP and no file.
from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from otel_llmprism.model.hosts import HostTables
from otel_llmprism.model.steps import U64, UNKNOWN, LedgerTables, Table
from otel_llmprism.native import ledger_layout as layout
from otel_llmprism.native.ledger_layout import ChunkAnchor, PackedColumn
from otel_llmprism.native.ledger_schema import COLUMNS, Column, Reference
from otel_llmprism.native.ledger_schema import Table as TableId

_HANDLE_COLUMNS = tuple(column.key for column in COLUMNS if column.target == "handles.handle")
_STEP_TABLES = tuple(field.name for field in fields(LedgerTables) if field.name != "text")
_ONE = np.uint64(1)
_NOTHING: U64 = np.zeros(0, dtype=np.uint64)
_ALL_BITS = (1 << 64) - 1


class ChunkTooLargeError(ValueError):
    """The tables do not fit one chunk: make chunks of fewer steps."""


def encode_chunk(tables: LedgerTables, anchor: ChunkAnchor) -> bytes:
    """Encode tables whose row numbers count within themselves; decoding gives them back exactly."""
    return encode_columns(list_values(tables), anchor)


def encode_host_chunk(tables: HostTables, anchor: ChunkAnchor) -> bytes:
    """Encode host samples; likewise exact."""
    return encode_columns(list_host_values(tables), anchor)


def encode_columns(values: Mapping[str, U64], anchor: ChunkAnchor) -> bytes:
    """Encode columns given by their key; a table without any has no rows."""
    handles = [values[key] for key in _HANDLE_COLUMNS if key in values]
    own = {**values, "handles.handle": np.unique(np.concatenate(handles)) if handles else _NOTHING}
    rows = [0] * len(TableId)
    for column in COLUMNS:
        rows[column.table] = len(own.get(column.key, _NOTHING))
    chunk = layout.pack_chunk(anchor, rows, _pack_columns(own, min_width=0))
    if sum(rows) > layout.FREE_ROWS + len(chunk):
        # Nothing but constants: a reader would take so many rows in so few bytes for an attack.
        chunk = layout.pack_chunk(anchor, rows, _pack_columns(own, min_width=1))
    if len(chunk) > layout.MAX_CHUNK_BYTES:
        raise ChunkTooLargeError(f"{rows[0]} steps take {len(chunk)} bytes, a chunk {layout.MAX_CHUNK_BYTES}")
    return chunk


def list_values(tables: LedgerTables) -> dict[str, U64]:
    """Return every stored column as 64-bit numbers by its key (floats as their bits)."""
    values = {"text.text": tables.text.astype(np.uint64)}
    for name in _STEP_TABLES:
        values |= _list_columns(name, getattr(tables, name))
    return values


def list_host_values(tables: HostTables) -> dict[str, U64]:
    names = {"names.names": tables.names.astype(np.uint64)}
    return names | _list_columns("series", tables.series) | _list_columns("samples", tables.samples)


def _list_columns(name: str, table: Table) -> dict[str, U64]:
    values: dict[str, U64] = {}
    if not len(table):
        return values
    for field in fields(table):
        stored = getattr(table, field.name)
        if stored.dtype.kind == "f":
            stored = stored.view(f"<u{stored.dtype.itemsize}")
        values[f"{name}.{field.name}"] = stored.astype(np.uint64)
    return values


def _pack_columns(values: Mapping[str, U64], min_width: int) -> list[PackedColumn]:
    packed = []
    first_of_table: set[TableId] = set()
    for column in COLUMNS:
        own = values.get(column.key, _NOTHING)
        if len(own):
            numbers, mode = _make_relative(column, own, values)
            width = 0 if column.table in first_of_table else min_width
            first_of_table.add(column.table)
            packed.append(_pack_numbers(column.id, numbers, mode, width))
    return packed


def _make_relative(column: Column, own: U64, values: Mapping[str, U64]) -> tuple[U64, int]:
    if column.reference is Reference.LOOKUP:
        return np.searchsorted(values[column.target], own).astype(np.uint64), 0
    if column.reference in {Reference.NONE, Reference.INDEX}:
        return (own + _ONE if column.is_optional else own), 0
    origin = values[column.target]
    if column.reference is Reference.VIA_ROW:
        origin = origin[values[column.via].astype(np.int64)]
    numbers = own - origin
    if column.is_optional:
        numbers += _ONE
        is_unknown = own == UNKNOWN
        if np.any((numbers == 0) & ~is_unknown):  # 0 says unknown: this column goes without its reference
            return own + _ONE, 0
        numbers[is_unknown] = 0
    return numbers, layout.MODE_RELATIVE


def _pack_numbers(column_id: int, numbers: U64, mode: int, min_width: int) -> PackedColumn:
    # What is relative may lie a little below its reference.
    ordered = numbers.view(np.int64) if mode else numbers
    low, high = int(ordered.min()), int(ordered.max())
    width = max(_count_bytes(high - low), min_width)
    if width > 1 and len(numbers) > 2:
        # Differences wrap around like the decoder's sums do; their spread is what has to be stored.
        steps = np.diff(numbers).view(np.int64)
        least, most = int(steps.min()), int(steps.max())
        delta_width = max(_count_bytes(most - least), min_width)
        if delta_width < width:
            offsets = np.zeros(len(numbers), dtype=np.uint64)
            np.subtract(steps, np.int64(least), out=offsets[1:].view(np.int64))
            first = int(numbers[0]) - least & _ALL_BITS
            delta = mode | layout.MODE_DELTA
            packed = _cut_bytes(offsets, delta_width)
            return PackedColumn(column_id, delta, delta_width, least & _ALL_BITS, first, packed)
    low &= _ALL_BITS
    return PackedColumn(column_id, mode, width, low, 0, _cut_bytes(numbers - np.uint64(low), width))


def _count_bytes(spread: int) -> int:
    return (spread.bit_length() + 7) // 8


def _cut_bytes(offsets: U64, width: int) -> bytes:
    if width == 0:
        return b""
    return offsets.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
